"""Tests of subjects in another environment."""
