"""The fast twin of `v4model.ops.rope.rotate`: one pass; its gradient is the rotation back."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from v4model.ops.fast.kernels import rowwise


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor], *, inverse: bool = False) -> Tensor:
    """As the plain twin."""
    y: Tensor = _Rotate.apply(x, *rotation, inverse)  # type: ignore[no-untyped-call]
    return y


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, inverse: bool) -> Tensor:  # noqa: FBT001 - torch's order
        ctx.save_for_backward(cos, sin)
        ctx.inverse = inverse
        return _turned(x, cos, sin, inverse=inverse)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        cos, sin = ctx.saved_tensors
        return _turned(grads[0], cos, sin, inverse=not ctx.inverse), None, None, None


def _turned(x: Tensor, cos: Tensor, sin: Tensor, *, inverse: bool) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        width = x.shape[-1]
        rows, block_d = x.numel() // width, triton.next_power_of_2(width)
        block_r = max(4096 // block_d, 1)
        rowwise.rotate[triton.cdiv(rows, block_r),](
            x, cos.contiguous(), sin.contiguous(), out, rows, rows // x.shape[0],
            WIDTH=width, ROTARY=2 * cos.shape[1], INVERSE=inverse, BLOCK_R=block_r, BLOCK_D=block_d, num_warps=4,
        )  # fmt: skip
    return out
