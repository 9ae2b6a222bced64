"""Sinkhorn: columns first, then rows and columns in turn, eps beside every sum."""

from __future__ import annotations

import pytest
import torch

from suites.v4model.support import randn, relative_error
from v4model.ops.sinkhorn import sinkhorn


def slow(x: list[list[float]], *, iterations: int, eps: float) -> list[list[float]]:
    size = range(len(x))
    for half in range(2 * iterations - 1):
        if half % 2 == 0:
            sums = [sum(x[i][j] for i in size) + eps for j in size]
            x = [[x[i][j] / sums[j] for j in size] for i in size]
        else:
            sums = [sum(x[i]) + eps for i in size]
            x = [[x[i][j] / sums[i] for j in size] for i in size]
    return x


@pytest.mark.parametrize("iterations", [1, 2, 3, 20])
@pytest.mark.parametrize("eps", [0.0, 1e-6, 0.1])
def test_equals_the_loop(iterations: int, eps: float) -> None:
    x = randn(5, 4, 4).exp()
    expected = torch.tensor(
        [slow(matrix, iterations=iterations, eps=eps) for matrix in x.tolist()], dtype=torch.float64
    )
    assert relative_error(sinkhorn(x, iterations=iterations, eps=eps), expected) < 1e-14


def test_first_comes_one_normalisation_of_columns() -> None:
    x = torch.tensor([[3.0, 1.0], [1.0, 3.0], [4.0, 4.0]])[:2]
    once = sinkhorn(x, iterations=1, eps=0.0)
    assert once.sum(0).tolist() == [1.0, 1.0]
    uneven = torch.tensor([[3.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    assert sinkhorn(uneven, iterations=1, eps=0.0).tolist() == [[0.75, 0.5], [0.25, 0.5]]
    # Rows of that sum to 5/4 and 3/4; after them, columns again.
    twice = sinkhorn(uneven, iterations=2, eps=0.0)
    torch.testing.assert_close(twice, torch.tensor([[9 / 14, 3 / 8], [5 / 14, 5 / 8]], dtype=torch.float64))


def test_many_iterations_are_doubly_stochastic() -> None:
    x = sinkhorn(randn(3, 4, 4).exp(), iterations=200, eps=0.0)
    for axis in (-1, -2):
        torch.testing.assert_close(x.sum(axis), torch.ones(3, 4, dtype=torch.float64))
