"""Tests of v4model.parallel."""
