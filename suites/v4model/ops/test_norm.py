"""RMS norm against its formula, and its precision."""

from __future__ import annotations

import pytest
import torch

from suites.v4model.support import leaf, randn, relative_error
from v4model.ops.norm import rms_norm

EPS = 1e-6


@pytest.mark.parametrize("weight", [None, randn(7, seed=1)], ids=["unweighted", "weighted"])
def test_equals_the_formula(weight: torch.Tensor | None) -> None:
    x = randn(3, 5, 7)
    expected = torch.empty_like(x)
    for index in torch.cartesian_prod(torch.arange(3), torch.arange(5)).tolist():
        row = x[tuple(index)]
        norm = (sum(float(value) ** 2 for value in row) / 7 + EPS) ** 0.5
        expected[tuple(index)] = row / norm * (1 if weight is None else weight)
    found = rms_norm(x, eps=EPS, weight=weight)
    assert relative_error(found, expected) < 1e-15


def test_gradient() -> None:
    x, weight = leaf(2, 4), leaf(4, seed=1)
    torch.autograd.gradcheck(lambda a, b: rms_norm(a, eps=EPS, weight=b), (x, weight))


def test_zero_stays_zero_with_a_finite_gradient() -> None:
    x = torch.zeros(2, 4, requires_grad=True)
    y = rms_norm(x, eps=EPS)
    y.sum().backward()
    assert not y.any()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_squares_are_summed_in_float32() -> None:
    # 512 equal squares summed in bfloat16 stop growing at 256 of them; and 300^2 * 512 would overflow float16.
    x = torch.full((1, 512), 300.0)
    for dtype in (torch.bfloat16, torch.float16):
        y = rms_norm(x.to(dtype), eps=EPS, weight=torch.full((512,), 3.0))
        assert y.dtype == dtype
        torch.testing.assert_close(y, torch.full((1, 512), 3.0, dtype=dtype))
