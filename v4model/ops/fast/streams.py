"""The fast twins of mHC's functions in `v4model.layers.hyper`: one pass over the streams each way."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from v4model.ops.fast.kernels import streams as kernels

_BLOCK = 2048
"""Channels at once."""

_PARTS = 3
"""bfloat16 numbers that hold a float32 one together: their products with bfloat16 streams are those in float32."""


def collapse(streams: Tensor, weight: Tensor) -> Tensor:
    """As the plain twin."""
    out: Tensor = _Collapse.apply(streams, weight)  # type: ignore[no-untyped-call]
    return out


def expand(streams: Tensor, out: Tensor, *, post: Tensor, comb: Tensor) -> Tensor:
    """As the plain twin."""
    mixed: Tensor = _Expand.apply(streams, out, post, comb)  # type: ignore[no-untyped-call]
    return mixed


def normed_product(streams: Tensor, fn: Tensor, *, eps: float) -> Tensor:
    """As the plain twin."""
    y: Tensor = _NormedProduct.apply(streams, fn, eps)  # type: ignore[no-untyped-call]
    return y


class _Collapse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, streams: Tensor, weight: Tensor) -> Tensor:
        streams, weight = streams.contiguous(), weight.contiguous()
        tokens, count, width = streams.shape
        out = torch.empty(tokens, width, dtype=streams.dtype, device=streams.device)
        block = _block(width)
        if tokens:
            kernels.collapse_forward[tokens, triton.cdiv(width, block)](
                streams, weight, out, width, STREAMS=count, BLOCK=block
            )
        ctx.save_for_backward(streams, weight)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        streams, weight = ctx.saved_tensors
        dstreams, dweight = torch.empty_like(streams), torch.empty_like(weight)
        tokens, count, width = streams.shape
        if tokens:
            kernels.collapse_backward[tokens,](
                streams, weight, grads[0].contiguous(), dstreams, dweight, width, STREAMS=count, BLOCK=_block(width)
            )
        return dstreams, dweight


class _Expand(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, streams: Tensor, out: Tensor, post: Tensor, comb: Tensor) -> Tensor:
        inputs = [x.contiguous() for x in (streams, out, post, comb)]
        tokens, count, width = streams.shape
        mixed = torch.empty_like(inputs[0])
        block = _block(width)
        if tokens:
            kernels.expand_forward[tokens, triton.cdiv(width, block)](*inputs, mixed, width, STREAMS=count, BLOCK=block)
        ctx.save_for_backward(*inputs)
        return mixed

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        inputs = ctx.saved_tensors
        found = tuple(torch.empty_like(x) for x in inputs)
        tokens, count, width = inputs[0].shape
        if tokens:
            kernels.expand_backward[tokens,](
                *inputs, grads[0].contiguous(), *found, width,
                STREAMS=count, PADDED=triton.next_power_of_2(count), BLOCK=min(_block(width), 1024),
            )  # fmt: skip
        return found


class _NormedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, streams: Tensor, fn: Tensor, eps: float) -> Tensor:
        streams, fn = streams.contiguous(), fn.contiguous()
        tokens, (rows, width) = streams.shape[0], fn.shape
        y = torch.empty(tokens, rows, dtype=fn.dtype, device=fn.device)
        scale = torch.empty(tokens, dtype=fn.dtype, device=fn.device)
        if tokens:
            kernels.normed_forward[triton.cdiv(tokens, 64),](
                streams, _parts(fn, streams), y, scale, tokens, width, rows, eps,
                PARTS=_num_parts(streams), BLOCK_T=64, BLOCK_R=_rows(rows), BLOCK=128, num_warps=4,
            )  # fmt: skip
        ctx.save_for_backward(streams, fn, y, scale)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        streams, fn, y, scale = ctx.saved_tensors
        dy = grads[0].contiguous()
        tokens, (rows, width) = streams.shape[0], fn.shape
        dx = torch.empty_like(streams)
        split = 1024
        parts = torch.zeros(triton.cdiv(tokens, split), rows, width, dtype=fn.dtype, device=fn.device)
        if tokens:
            block_r = _rows(rows)
            kernels.normed_backward_x[triton.cdiv(tokens, 64), triton.cdiv(width, 128)](
                streams, _parts(fn, streams), y, scale, dy, dx, tokens, width, rows,
                PARTS=_num_parts(streams), BLOCK_T=64, BLOCK_R=block_r, BLOCK=128, num_warps=4,
            )  # fmt: skip
            kernels.normed_backward_fn[triton.cdiv(width, 128), parts.shape[0]](
                streams, scale, dy, parts, tokens, width, rows,
                PARTS=_num_parts(streams), SPLIT=split, BLOCK_T=64, BLOCK_R=block_r, BLOCK=128, num_warps=4,
            )  # fmt: skip
        return dx, parts.sum(0), None


def _num_parts(streams: Tensor) -> int:
    return _PARTS if streams.dtype == torch.bfloat16 else 1


def _parts(fn: Tensor, streams: Tensor) -> Tensor:
    """[parts, R, K * D]: numbers that add up to fn, each in a dtype that the streams multiply with."""
    parts = []
    for _ in range(_num_parts(streams) - 1):
        parts.append(fn.to(streams.dtype))
        fn = fn - parts[-1].float()
    return torch.stack([*parts, fn.to(parts[-1].dtype if parts else fn.dtype)])


def _block(width: int) -> int:
    return min(int(triton.next_power_of_2(width)), _BLOCK)


def _rows(rows: int) -> int:
    return max(int(triton.next_power_of_2(rows)), 16)
