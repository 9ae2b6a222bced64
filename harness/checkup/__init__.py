"""Tells the author of an adapter what is missing or wrong with it, one step after another, before any property does."""

from harness.checkup.steps import Finding, Status, check_subject
from harness.checkup.text import exit_code, lines, summary, to_json

__all__ = ["Finding", "Status", "check_subject", "exit_code", "lines", "summary", "to_json"]
