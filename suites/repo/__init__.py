"""Tests of the repository itself: contracts between folders, habits, documentation that runs."""
