"""The fast twin of `v4model.ops.pick.index_scores`: a program a token, and nothing with heads times picks is held."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from v4model.ops.fast.by_row import add_by_row
from v4model.ops.fast.kernels import index_scores as kernels
from v4model.ops.fast.tuning import BACKWARD_TOKENS, Block, index_blocks


def index_scores(q: Tensor, gate: Tensor, keys: Tensor, *, rows: Tensor) -> Tensor:
    """As the plain twin; a row behind the last key makes its score NaN instead of being read."""
    scores: Tensor = _IndexScores.apply(q, gate, keys, rows)  # type: ignore[no-untyped-call]
    return scores


class _IndexScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, gate: Tensor, keys: Tensor, rows: Tensor) -> Tensor:
        q, gate, keys, rows = (x.contiguous() for x in (q, gate, keys, rows))
        out = torch.empty(rows.shape, dtype=torch.float32, device=q.device)
        block, _ = index_blocks(q.dtype)
        if out.numel():
            kernels.forward[q.shape[0],](
                q, gate, keys, rows, out, keys.shape[0], rows.shape[1], q.shape[1], **_sizes(q, rows, block)
            )
        ctx.save_for_backward(q, gate, keys, rows)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, gate, keys, rows = ctx.saved_tensors
        dq = torch.empty_like(q)
        dgate = torch.empty(gate.shape, dtype=torch.float32, device=gate.device)
        dkeys = torch.zeros(keys.shape, dtype=torch.float32, device=keys.device)
        _, block = index_blocks(q.dtype)
        for first in range(0, q.shape[0], BACKWARD_TOKENS):
            part = rows[first : first + BACKWARD_TOKENS]
            sent = torch.empty(*part.shape, q.shape[2], dtype=q.dtype, device=q.device)
            kernels.backward[part.shape[0],](
                q, gate, keys, rows, grads[0].contiguous(), dq, dgate, sent,
                keys.shape[0], rows.shape[1], first, q.shape[1], **_sizes(q, rows, block),
            )  # fmt: skip
            add_by_row(sent, part, to=dkeys)
        return dq, dgate.to(gate.dtype), dkeys.to(keys.dtype), None


def _sizes(q: Tensor, rows: Tensor, block: Block) -> dict[str, int]:
    """Of a program; heads and channels a power of two from 16, the least that a matrix product takes."""
    return {
        "WIDTH": q.shape[2],
        "BLOCK_H": max(int(triton.next_power_of_2(q.shape[1])), 16),
        "BLOCK_D": max(int(triton.next_power_of_2(q.shape[2])), 16),
        "BLOCK_K": max(int(triton.next_power_of_2(rows.shape[1])), 1),
        "BLOCK_N": block.rows,
        "STAGES": block.stages,
        "num_warps": block.warps,
    }
