"""The fast twin of `v4model.ops.norm.rms_norm`: one pass each way, nothing kept but the input."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from v4model.ops.fast.kernels import rowwise

_PROGRAMS = 528
"""Of the backward pass: four for each multiprocessor of an H200; each leaves a row for the weight's gradient."""


def rms_norm(x: Tensor, *, eps: float, weight: Tensor | None = None) -> Tensor:
    """As the plain twin."""
    y: Tensor = _RMSNorm.apply(x, weight, eps)  # type: ignore[no-untyped-call]
    return y


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, block_r, block_d, warps = _blocks(x)
        if x.numel():
            rowwise.norm_forward[triton.cdiv(rows, block_r),](
                x, x if weight is None else weight, y, rows, eps,
                WIDTH=x.shape[-1], BLOCK_R=block_r, BLOCK_D=block_d, WEIGHTED=weight is not None, num_warps=warps,
            )  # fmt: skip
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        dx = torch.empty_like(x)
        rows, block_r, block_d, warps = _blocks(x)
        programs = min(triton.cdiv(rows, block_r), _PROGRAMS)
        parts = torch.zeros(programs if weight is not None else 0, x.shape[-1], dtype=torch.float32, device=x.device)
        if x.numel():
            rowwise.norm_backward[programs,](
                x, x if weight is None else weight, grads[0].contiguous(), dx, parts, rows, ctx.eps,
                WIDTH=x.shape[-1], BLOCK_R=block_r, BLOCK_D=block_d, WEIGHTED=weight is not None, num_warps=warps,
            )  # fmt: skip
        return dx, None if weight is None else parts.sum(0).to(weight.dtype), None


def _blocks(x: Tensor) -> tuple[int, int, int, int]:
    """Rows of x, rows and channels of a block, warps."""
    block_d = triton.next_power_of_2(x.shape[-1])
    return x.numel() // max(x.shape[-1], 1), max(4096 // block_d, 1), block_d, 4 if block_d <= 4096 else 8
