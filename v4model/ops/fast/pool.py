"""The fast twins of `v4model.ops.pool`'s pooling: one pass over the windows each way, nothing kept but the inputs."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from v4model.ops.fast.kernels import pool as kernels
from v4model.pack.windows import Windows

_NUMBERS = 4096
"""Of kv and of gate that a program holds at once."""

_PROGRAMS = 528
"""Of the backward pass: four for each multiprocessor of an H200; each leaves a part of the bias's gradient."""


def pool_windows(kv: Tensor, gate: Tensor, position_bias: Tensor, *, windows: Windows) -> Tensor:
    """As the plain twin; a token behind the last makes its window's row NaN instead of being read."""
    rows: Tensor = _Pool.apply(kv, gate, position_bias, windows, 1)  # type: ignore[no-untyped-call]
    return rows


def pool_overlapping_windows(kv: Tensor, gate: Tensor, position_bias: Tensor, *, windows: Windows) -> Tensor:
    """As the plain twin; a token behind the last makes its window's row NaN instead of being read."""
    rows: Tensor = _Pool.apply(kv, gate, position_bias, windows, 2)  # type: ignore[no-untyped-call]
    return rows


class _Pool(torch.autograd.Function):
    """`halves`: 2 where a window also reads the first half of the channels of the window before, else 1."""

    @staticmethod
    def forward(ctx: Any, kv: Tensor, gate: Tensor, bias: Tensor, windows: Windows, halves: int) -> Tensor:
        kv, gate, bias = kv.contiguous(), gate.contiguous(), bias.contiguous()
        width = kv.shape[1] // halves
        out = torch.empty(windows.count, width, dtype=kv.dtype, device=kv.device)
        first, index = windows.first_token.contiguous(), windows.index.contiguous()
        sizes, channel_blocks = _sizes(width, ratio=windows.ratio, halves=halves)
        if windows.count:
            kernels.forward[windows.count, channel_blocks](
                kv, gate, bias, first, index, out, kv.shape[0], **sizes, num_warps=4
            )
        ctx.save_for_backward(kv, gate, bias, first, index)
        ctx.halves = halves
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        kv, gate, bias, first, index = ctx.saved_tensors
        # Tokens in no window, and halves that no window reads, are written by no program.
        dkv, dgate = torch.zeros_like(kv), torch.zeros_like(gate)
        sizes, channel_blocks = _sizes(kv.shape[1] // ctx.halves, ratio=bias.shape[0], halves=ctx.halves)
        run = triton.cdiv(first.shape[0], max(_PROGRAMS // channel_blocks, 1))
        programs = triton.cdiv(first.shape[0], max(run, 1))
        parts = torch.empty(programs, *bias.shape, dtype=torch.float32, device=kv.device)
        if programs:
            kernels.backward[programs, channel_blocks](
                kv, gate, bias, first, index, grads[0].contiguous(), dkv, dgate, parts,
                kv.shape[0], first.shape[0], run, **sizes, num_warps=4,
            )  # fmt: skip
        return dkv, dgate, parts.sum(0).to(bias.dtype), None, None


def _sizes(width: int, *, ratio: int, halves: int) -> tuple[dict[str, int], int]:
    """Sizes of a program, and how many blocks of channels there are."""
    slots = halves * ratio
    block_s = int(triton.next_power_of_2(slots))
    block_c = min(int(triton.next_power_of_2(width)), max(_NUMBERS // block_s, 1))
    sizes = {"WIDTH": width, "RATIO": ratio, "SLOTS": slots, "BLOCK_S": block_s, "BLOCK_C": block_c}
    return sizes, int(triton.cdiv(width, block_c))
