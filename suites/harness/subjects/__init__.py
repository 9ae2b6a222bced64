"""Tests of the subjects."""
