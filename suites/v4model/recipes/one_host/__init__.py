"""Tests of what is measured on one host."""
