"""A fast twin and its plain one, each against the plain one in float64, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps

import torch
from torch import Tensor

from v4model.ops.twins import plain_only

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NARROW = torch.bfloat16 if torch.cuda.is_available() else torch.float16
"""Triton's interpreter multiplies no bfloat16 matrices; float16 takes the same way through every kernel."""

DTYPES = [torch.float32, NARROW]
ALLOWED, FLOOR = 2.0, 3e-7
"""How many times the plain twin's error a fast one's may be, and what float32 sums may differ by in any case."""


def plain(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The plain function behind the choice of a twin, and plain ones wherever it chooses in turn."""
    found: Callable[..., Tensor] = function.__wrapped__  # type: ignore[attr-defined]

    @wraps(found)
    def run(*args: object, **kwargs: object) -> Tensor:
        with plain_only():
            return found(*args, **kwargs)

    return run


def error(got: Tensor, expected: Tensor) -> float:
    """Norm of the difference over the norm of what is expected; NaN where anything is."""
    got, expected = got.detach().double(), expected.detach().double()
    return float((got - expected).norm()) / max(float(expected.norm()), 1e-12) if got.numel() else 0.0


def hold(
    slow: Callable[..., Tensor],
    fast: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    *,
    dtype: torch.dtype,
    wide: Sequence[int] = (),
) -> None:
    """Asserts that value and gradients of `fast` are within `ALLOWED` times the error of `slow`.

    Args:
        inputs: float64, rounded to `dtype` here; those at the places `wide` stay in float32.
    """
    rounded = [x.to(torch.float32 if place in wide else dtype).double() for place, x in enumerate(inputs)]

    def run(function: Callable[..., Tensor], of: torch.dtype) -> list[Tensor]:
        leaves = [
            x.to(DEVICE, torch.float32 if place in wide and of != torch.float64 else of).requires_grad_()
            for place, x in enumerate(rounded)
        ]
        out = function(*leaves)
        weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        return [out, *torch.autograd.grad(out, leaves, weight.to(dtype).to(DEVICE, out.dtype))]

    names = ["value", *(f"gradient {place}" for place in range(len(inputs)))]
    found = zip(names, run(slow, torch.float64), run(slow, dtype), run(fast, dtype), strict=True)
    for name, exact, slower, faster in found:
        assert faster.shape == slower.shape, name
        assert faster.dtype == slower.dtype, name
        bound = ALLOWED * error(slower, exact) + FLOOR
        assert error(faster, exact) <= bound, (name, error(faster, exact), bound)
