"""Edges of zeros: what passes through them is not changed, and no weight is read."""

from __future__ import annotations

import torch

from suites.v4model.support import leaf, randn
from v4model.ops.edge import with_edges


def test_parameters_get_zeros_whatever_they_hold_and_x_its_own_gradient() -> None:
    x, weight = leaf(3, 2), torch.tensor([float("nan"), float("inf")], requires_grad=True)
    narrow = leaf(4, dtype=torch.bfloat16)
    y = with_edges(x, weight, narrow)
    assert torch.equal(y, x)
    y.square().sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, 2 * x.detach())
    for parameter in (weight, narrow):
        assert parameter.grad is not None
        assert parameter.grad.dtype == parameter.dtype
        assert torch.equal(parameter.grad, torch.zeros_like(parameter))


def test_no_rows_still_carry_the_edge() -> None:
    x, weight = leaf(0, 2), leaf(3)
    with_edges(x, weight).sum().backward()
    assert weight.grad is not None
    assert not weight.grad.any()


def test_without_gradients_it_is_nothing() -> None:
    with torch.no_grad():
        assert not with_edges(randn(3), leaf(2)).requires_grad
