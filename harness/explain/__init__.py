"""One case as text, as a picture and as a test: its verdict, where its runs part, what each sample depends on."""

from harness.explain.explanation import Explanation, explain, to_json
from harness.explain.issue import issue_of
from harness.explain.picture import check_format, draw, picture_of
from harness.explain.regression import check_new, write_test
from harness.explain.text import lines

__all__ = [
    "Explanation",
    "check_format",
    "check_new",
    "draw",
    "explain",
    "issue_of",
    "lines",
    "picture_of",
    "to_json",
    "write_test",
]
