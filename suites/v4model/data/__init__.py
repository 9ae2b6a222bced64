"""Tests of v4model.data."""
