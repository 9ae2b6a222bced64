"""Numbers as people read them."""

from __future__ import annotations

import pytest

from harness.nightly import wording


@pytest.mark.parametrize(
    ("value", "text"), [(0.0004, "0 ms"), (0.25, "250 ms"), (3.4219, "3.42 s"), (161.4, "2.69 min"), (7300, "2.0 h")]
)
def test_seconds(value: float, text: str) -> None:
    assert wording.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (float("nan"), "-"),
        (0.0, "0"),
        (float("inf"), "inf"),
        (0.134, "0.13"),
        (4.2e-4, "4e-4"),
        (3e-12, "3e-12"),
    ],
)
def test_share(value: float | None, text: str) -> None:
    assert wording.share(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0 B"), (1023, "1.02e+03 B"), (1024, "1 KiB"), (3 * 2**30, "3 GiB")])
def test_size(value: float, text: str) -> None:
    assert wording.size(value) == text


def test_counts_lists_and_signs() -> None:
    assert [wording.count(1, "flake"), wording.count(1200, "flake")] == ["1 flake", "1,200 flakes"]
    assert wording.count(2, "property", "properties") == "2 properties"
    assert wording.listed(list("abcde")) == "a, b, c and 2 more"
    assert [wording.signed(value, "2 s") for value in (2, 0, -2)] == ["+2 s", "±0", "-2 s"]
