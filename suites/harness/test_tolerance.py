"""Measures of difference: NaN and infinity never pass, shapes never broadcast, floors hold."""

from __future__ import annotations

import math

import pytest
import torch

from harness.tolerance import largest_difference, largest_magnitude, relative_error


@pytest.mark.parametrize(
    ("got", "expected", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([], [], 0.0),
        ([math.nan], [math.nan], 0.0),
        ([math.inf, -math.inf], [math.inf, -math.inf], 0.0),
        ([math.nan, 1.0], [1.0, 1.0], math.inf),
        ([1.0], [math.nan], math.inf),
        ([math.inf], [-math.inf], math.inf),
        ([math.inf], [1.0], math.inf),
    ],
)
def test_largest_difference(got: list[float], expected: list[float], difference: float) -> None:
    assert largest_difference(torch.tensor(got), torch.tensor(expected)) == difference


def test_shapes_never_broadcast() -> None:
    with pytest.raises(ValueError, match=r"got shape \(2, 1\); expected \(2,\)"):
        largest_difference(torch.zeros(2, 1), torch.zeros(2))


@pytest.mark.parametrize(
    ("got", "expected", "floor", "error"),
    [
        ([3.0, 1.0], [2.0, 1.0], 0.0, 0.5),
        ([3.0, 1.0], [2.0, 1.0], 10.0, 0.1),
        ([0.0], [0.0], 0.0, 0.0),
        ([1e-300], [0.0], 0.0, math.inf),
        ([1e-3], [0.0], 1.0, 1e-3),
        ([math.nan], [1.0], 1.0, math.inf),
        ([math.inf], [math.inf], 0.0, 0.0),
    ],
)
def test_relative_error(got: list[float], expected: list[float], floor: float, error: float) -> None:
    measured = relative_error(
        torch.tensor(got, dtype=torch.float64), torch.tensor(expected, dtype=torch.float64), floor=floor
    )
    assert measured == pytest.approx(error)


def test_largest_magnitude() -> None:
    assert largest_magnitude(torch.tensor([1.0, -3.0])) == 3.0
    assert largest_magnitude(torch.zeros(0)) == 0.0
