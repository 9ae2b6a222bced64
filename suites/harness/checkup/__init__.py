"""Tests of the check-up."""
