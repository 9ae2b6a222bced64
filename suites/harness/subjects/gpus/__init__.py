"""Tests of the comparison of several GPUs with one."""
