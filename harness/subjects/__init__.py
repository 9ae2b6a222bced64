"""Subjects: what the harness can check, each behind the same small protocol."""
