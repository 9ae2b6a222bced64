"""What rises and what only trembles; what is a flake and what broke once."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from harness.nightly.trends import FEWEST, courses, mann_kendall, rises


@pytest.mark.parametrize("count", [8, 14, 60])
def test_mann_kendall_counts_pairs(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count) + np.arange(count) / 10
    pairs = sum(int(np.sign(two - one)) for one, two in itertools.combinations(values, 2))
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    assert mann_kendall(values) == pytest.approx((pairs - np.sign(pairs)) / deviation, rel=1e-12)


def test_a_slow_drift_is_found_among_errors_that_tremble() -> None:
    random = np.random.default_rng(0)
    nights = np.arange(14)
    # As errors of a search do: the largest of many, a factor of 3 from night to night.
    values = 10 ** random.uniform(-4.5, -4, size=(14, 200))
    values[:, 7] = 1e-4 * 1.3**nights * random.uniform(0.8, 1.25, size=14)
    (rise,) = rises([str(n) for n in range(200)], values)
    assert (rise.name, rise.nights) == ("7", 14)
    assert rise.factor == pytest.approx(1.3**10, rel=0.5)  # the middles of the thirds are 10 nights apart


def test_nights_without_the_figure_do_not_hide_a_drift_and_few_nights_show_none() -> None:
    values = (1.5 ** np.arange(12.0))[:, None]
    values[[3, 5]] = np.nan
    assert rises(["a"], values)[0].nights == 10
    assert rises(["a"], values[: FEWEST - 1]) == []


@pytest.mark.parametrize("values", [[1.0] * 20, [0.0] * 20, list(range(20, 0, -1)), [1, 9] * 10])
def test_what_does_not_rise_is_not_told(values: list[float]) -> None:
    assert rises(["a"], np.array(values, dtype=float)[:, None]) == []


@pytest.mark.parametrize(
    ("told", "kind", "changes", "since"),
    [
        ("....F", "red", 1, 4),
        ("..FFF", "red", 1, 2),
        ("FF...", "fixed", 1, 2),
        ("..F..", "flake", 2, 3),
        (".F.F.", "flake", 4, 4),
        (". F .", "flake", 2, 4),
        ("..~..", "flake", 2, 0),
        ("   .F", "red", 1, 4),
    ],
)
def test_the_course_of_a_test(told: str, kind: str, changes: int, since: int) -> None:
    marks = np.array(list(told))[:, None]
    (course,) = courses(marks == "F", (marks == ".") | (marks == "~"), marks == "~")
    assert (course.kind, course.changes, course.since) == (kind, changes, since)


@pytest.mark.parametrize("told", [".....", "FFFFF", "     ", ". . ."])
def test_a_test_that_never_changes_has_no_course(told: str) -> None:
    marks = np.array(list(told))[:, None]
    assert courses(marks == "F", marks == ".", marks == "~") == []
