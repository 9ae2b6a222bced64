"""A gradient edge for parameters that a step does not use: the loss reaches them, with zeros (spec section 4)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def with_edges(x: Tensor, *parameters: Tensor) -> Tensor:
    """`x`; what goes backward through it also gives each of the parameters a gradient of exactly 0.

    Their values are not read: 0 times a weight that is no number would be none either.
    """
    y: Tensor = _WithEdges.apply(x, *parameters)  # type: ignore[no-untyped-call]
    return y


class _WithEdges(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *parameters: Tensor) -> Tensor:
        ctx.save_for_backward(*parameters)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        return grads[0], *(torch.zeros_like(parameter) for parameter in ctx.saved_tensors)
