"""How a budget is read and shared."""

from __future__ import annotations

import pytest

from harness.conduct.budget import Part, read_budget, share_out, told
from harness.errors import UsageError

SUITES = Part(name="suites", weight=50, least_s=30)
FUZZ = Part(name="fuzz", weight=30, least_s=20)
ODDS = Part(name="odds", weight=20, least_s=120)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7200), ("1h30m", 5400), ("none", None)]
)
def test_a_budget(text: str, seconds: float | None) -> None:
    assert read_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "10 m", "0s", "-5m", "10m!", "2d", "1e3s", "1000h", "None"])
def test_what_is_no_budget(text: str) -> None:
    with pytest.raises(UsageError, match="expected a time"):
        read_budget(text)


def test_shares_follow_the_weights() -> None:
    assert share_out(1000, [SUITES, FUZZ, ODDS]) == {"suites": 500, "fuzz": 300, "odds": 200}


def test_a_stage_that_would_get_too_little_gives_its_share_to_the_others() -> None:
    assert share_out(400, [SUITES, FUZZ, ODDS]) == {"suites": 250, "fuzz": 150}


def test_the_one_that_lacks_most_goes_first() -> None:
    # Of 40 seconds both would get too little, 25 of 30 and 15 of 20, but one of them can have it all.
    assert share_out(40, [SUITES, FUZZ]) == {"suites": 40}
    assert share_out(10, [SUITES, FUZZ]) == {}
    assert share_out(-5, [SUITES, FUZZ, ODDS]) == {}


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (119, "119 s"), (600, "10 min"), (3600, "1 h"), (7500, "2 h 5 min")]
)
def test_a_time_in_words(seconds: float, text: str) -> None:
    assert told(seconds) == text
