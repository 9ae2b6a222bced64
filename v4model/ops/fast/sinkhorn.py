"""The fast twin of `v4model.ops.sinkhorn.sinkhorn`: all iterations in registers, also backward."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from v4model.ops.fast.kernels import streams

_TOKENS = 32


def sinkhorn(x: Tensor, *, iterations: int, eps: float) -> Tensor:
    """As the plain twin."""
    y: Tensor = _Sinkhorn.apply(x, iterations, eps)  # type: ignore[no-untyped-call]
    return y


class _Sinkhorn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, iterations: int, eps: float) -> Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        tokens, sizes = _sizes(x)
        if tokens:
            streams.sinkhorn_forward[triton.cdiv(tokens, _TOKENS),](
                x, y, tokens, 2 * iterations - 1, eps, **sizes, BLOCK_T=_TOKENS, num_warps=4
            )
        ctx.save_for_backward(x)
        ctx.steps, ctx.eps = 2 * iterations - 1, eps
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        tokens, sizes = _sizes(x)
        kept = torch.empty(ctx.steps, *x.shape, dtype=x.dtype, device=x.device)
        if tokens:
            streams.sinkhorn_backward[triton.cdiv(tokens, _TOKENS),](
                x, grads[0].contiguous(), dx, kept, tokens, ctx.steps, ctx.eps, **sizes, BLOCK_T=_TOKENS, num_warps=4
            )
        return dx, None, None


def _sizes(x: Tensor) -> tuple[int, dict[str, int]]:
    side = x.shape[-1]
    return x.numel() // (side * side), {"STREAMS": side, "PADDED": triton.next_power_of_2(side)}
