"""Clamped SwiGLU worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from v4model.ops.swiglu import clamped_swiglu


def silu(x: float) -> float:
    return x / (1 + math.exp(-x))


@pytest.mark.parametrize(
    ("gate", "up", "expected"),
    [
        (1.5, -0.5, silu(1.5) * -0.5),  # inside both
        (12.0, 1.0, silu(10.0)),  # the gate is cut from above
        (-12.0, 1.0, silu(-12.0)),  # and never from below
        (2.0, 25.0, silu(2.0) * 10.0),
        (2.0, -25.0, silu(2.0) * -10.0),
        (30.0, 30.0, silu(10.0) * 10.0),  # clamped before the product: near 100, not 10
    ],
)
def test_by_hand(gate: float, up: float, expected: float) -> None:
    found = clamped_swiglu(*(torch.tensor([x], dtype=torch.float64) for x in (gate, up)), limit=10.0)
    assert found.item() == pytest.approx(expected, rel=1e-14)


def test_no_gradient_passes_a_clamp() -> None:
    gate = torch.tensor([12.0, -12.0, 1.0, 1.0], dtype=torch.float64, requires_grad=True)
    up = torch.tensor([1.0, 1.0, 25.0, -25.0], dtype=torch.float64, requires_grad=True)
    grads = torch.autograd.grad(clamped_swiglu(gate, up, limit=10.0).sum(), [gate, up])
    assert [bool(g) for g in grads[0]] == [False, True, True, True]
    assert [bool(g) for g in grads[1]] == [True, True, False, False]
