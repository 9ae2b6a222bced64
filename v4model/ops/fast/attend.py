"""The fast twin of `v4model.ops.attend.attend`: a program a token with all its heads, and gradients without atomics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
from torch import Tensor

from v4model.ops.fast.by_row import add_by_row
from v4model.ops.fast.kernels import attend as kernels
from v4model.ops.fast.kernels import attend_keys as key_kernels
from v4model.ops.fast.tuning import (
    BACKWARD_TOKENS,
    HOPPER_FORWARD,
    HOPPER_QUERIES,
    AttendBlocks,
    attend_blocks,
)
from v4model.pack.visibility import Visibility


@dataclass(frozen=True, eq=False, kw_only=True)
class _Rows:
    """Which rows each query reads, as the kernels take it.

    lo [T]: first local token; base, count [T]: pooled rows [base, base + count), or the first `count` of picks [T, k];
    columns: places a query's rows take at most; window: local ones among them, a multiple of every block.
    """

    kind: int
    lo: Tensor
    base: Tensor
    count: Tensor
    picks: Tensor
    first_query: int
    first_key: int
    window: int
    columns: int


def attend(
    q: Tensor,
    kv: Tensor,
    pool: Tensor,
    sinks: Tensor,
    *,
    visibility: Visibility,
    ratio: int,
    picks: Tensor | None,
    first_key: int,
    block_tokens: int,  # noqa: ARG001 - bounds the memory of the plain twin; nothing here grows with it
    wants_mass: bool = True,
) -> tuple[Tensor, Tensor]:
    """As the plain twin; a pick outside the pool makes its query's output NaN instead of reading there."""
    rows = _rows_of(visibility, ratio=ratio, picks=picks, first_key=first_key, blocks=attend_blocks(q.dtype))
    table = torch.cat([kv, pool])
    out, lse = _Attend.apply(q, table, sinks, rows, kv.shape[0])  # type: ignore[no-untyped-call]
    if picks is None or not wants_mass:
        return out, q.new_zeros(q.shape[0], 0, dtype=torch.float32)
    return out, _mass(q.detach(), table.detach(), lse.detach(), rows, num_keys=kv.shape[0])


def _rows_of(
    visibility: Visibility, *, ratio: int, picks: Tensor | None, first_key: int, blocks: AttendBlocks
) -> _Rows:
    window = _up(visibility.window, blocks.most)
    lo, none = visibility.local_lo, visibility.local_lo[:0]
    shared = {"lo": lo, "first_query": visibility.first_query, "first_key": first_key, "window": window}
    if not ratio:
        return _Rows(kind=kernels.DENSE, base=lo, count=lo, picks=none, columns=window, **shared)  # type: ignore[arg-type]
    pool = visibility.pools[ratio]
    if picks is None:
        most = max(visibility.layout.lengths, default=0) // ratio
        columns = window + _up(most, blocks.most)
        return _Rows(kind=kernels.HCA, base=pool.base, count=pool.visible, picks=none, columns=columns, **shared)  # type: ignore[arg-type]
    slot = torch.arange(1, picks.shape[1] + 1, device=picks.device, dtype=torch.int32)
    count = torch.where(picks >= 0, slot, 0).amax(1) if picks.shape[1] else torch.zeros_like(lo)
    columns = window + _up(picks.shape[1], blocks.most)
    picks = picks.to(torch.int32).contiguous()
    return _Rows(kind=kernels.CSA, base=pool.base, count=count, picks=picks, columns=columns, **shared)  # type: ignore[arg-type]


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, table: Tensor, sinks: Tensor, rows: _Rows, num_keys: int) -> tuple[Tensor, Tensor]:
        q, table = q.contiguous(), table.contiguous()
        out = torch.empty_like(q)
        lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
        blocks = attend_blocks(q.dtype)
        block_h = _heads(q)
        arguments = (
            q, table, sinks, rows.lo, rows.base, rows.count, rows.picks, out, lse,
            rows.first_query, rows.first_key, num_keys, table.shape[0], rows.picks.shape[-1],
            q.shape[1], q.shape[2] ** -0.5 * _LOG2_E,
        )  # fmt: skip
        sizes = {"WIDTH": q.shape[2], "LOCAL": rows.window, "KIND": rows.kind}
        grid = (q.shape[0], triton.cdiv(q.shape[1], block_h))
        if q.numel() and _is_for_hopper(q):
            from v4model.ops.fast.kernels import attend_hopper as hopper

            # One program a multiprocessor: more do not fit beside it.
            cores = torch.cuda.get_device_properties(q.device).multi_processor_count
            programs = min(q.shape[0], max(cores // grid[1], 1))
            hopper.forward[programs, grid[1]](
                *arguments, q.shape[0], **sizes, BLOCK_N=HOPPER_FORWARD.rows, num_warps=HOPPER_FORWARD.warps
            )
        elif q.numel():
            kernels.forward[grid](
                *arguments, **sizes, BLOCK_H=block_h, BLOCK_D=_channels(q.shape[2]),
                BLOCK_N=blocks.forward.rows, STAGES=blocks.forward.stages, num_warps=blocks.forward.warps,
            )  # fmt: skip
        ctx.save_for_backward(q, table, sinks, out, lse)
        ctx.rows, ctx.num_keys = rows, num_keys
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, table, sinks, out, lse = ctx.saved_tensors
        rows, num_keys = ctx.rows, ctx.num_keys
        dout = grads[0].contiguous()
        dq = torch.empty_like(q)
        delta = torch.empty_like(lse)
        dtable = torch.zeros(table.shape, dtype=torch.float32, device=table.device)
        for first in range(0, q.shape[0], BACKWARD_TOKENS):
            tokens = min(BACKWARD_TOKENS, q.shape[0] - first)
            _backward_of(q, table, out, dout, lse, rows, num_keys, first, tokens, dq=dq, delta=delta, dtable=dtable)
        # The sink's value is 0, so its score gets -delta times its probability.
        dsinks = -(torch.exp2(sinks.float() * _LOG2_E - lse) * delta).sum(0)
        return dq, dtable.to(table.dtype), dsinks.to(sinks.dtype), None, None


def _backward_of(
    q: Tensor, table: Tensor, out: Tensor, dout: Tensor, lse: Tensor, rows: _Rows, num_keys: int, first: int,
    tokens: int, *, dq: Tensor, delta: Tensor, dtable: Tensor,
) -> None:  # fmt: skip
    """Of queries [first, first + tokens): fills dq and delta, adds to dtable."""
    heads, width = q.shape[1:]
    blocks = attend_blocks(q.dtype)
    block_h, block_d = _heads(q), _channels(width)
    weight = torch.empty(tokens, rows.columns, heads, dtype=q.dtype, device=q.device)
    slope = torch.empty_like(weight)
    arguments = (
        q, table, lse, out, dout, rows.lo, rows.base, rows.count, rows.picks, dq, delta, weight, slope,
        rows.first_query, rows.first_key, num_keys, table.shape[0], rows.picks.shape[-1], first, rows.columns,
        heads, width**-0.5,
    )  # fmt: skip
    sizes = {"WIDTH": width, "LOCAL": rows.window, "KIND": rows.kind}
    grid = (tokens, triton.cdiv(heads, block_h))
    if _is_for_hopper(q):
        from v4model.ops.fast.kernels import attend_hopper as hopper

        hopper.backward_queries[grid](
            *arguments, **sizes, BLOCK_N=HOPPER_QUERIES.rows, BUFFERS=HOPPER_QUERIES.stages,
            num_warps=HOPPER_QUERIES.warps,
        )  # fmt: skip
    else:
        kernels.backward_queries[grid](
            *arguments, **sizes, BLOCK_H=block_h, BLOCK_D=block_d, BLOCK_O=min(block_d, 128),
            BLOCK_N=blocks.queries.rows, STAGES=blocks.queries.stages, num_warps=blocks.queries.warps,
        )  # fmt: skip
    tile = blocks.window
    # The keys these queries can see: from the first one's window to the last one.
    block_c = min(block_d, tile.channels)
    if num_keys:
        key_kernels.of_window[triton.cdiv(num_keys, tile.rows), triton.cdiv(width, block_c)](
            q, dout, weight, slope, rows.lo, dtable, rows.first_query, rows.first_key, num_keys, first, tokens,
            rows.columns, heads,
            WIDTH=width, LOCAL=rows.window, BLOCK_K=tile.rows, BLOCK_H=block_h, BLOCK_C=block_c,
            HEAD_BLOCKS=triton.cdiv(heads, block_h), STAGES=tile.stages, num_warps=tile.warps,
        )  # fmt: skip
    num_pooled = table.shape[0] - num_keys
    if not num_pooled:
        return
    if rows.kind == kernels.HCA:
        _add_visible(q, dout, weight, slope, rows, first, tokens, dpool=dtable[num_keys:])
    elif rows.kind == kernels.CSA and rows.picks.shape[1]:
        _add_picked(q, dout, weight, slope, rows, first, tokens, dpool=dtable[num_keys:])


def _add_visible(
    q: Tensor, dout: Tensor, weight: Tensor, slope: Tensor, rows: _Rows, first: int, tokens: int, *, dpool: Tensor
) -> None:
    heads, width = q.shape[1:]
    tile = attend_blocks(q.dtype).visible
    block_c = min(_channels(width), tile.channels)
    splits = triton.cdiv(tokens, tile.split)
    parts = torch.empty(splits, *dpool.shape, dtype=torch.float32, device=q.device)
    key_kernels.of_visible[triton.cdiv(dpool.shape[0], tile.rows), splits, triton.cdiv(width, block_c)](
        q, dout, weight, slope, rows.base, rows.count, parts, dpool.shape[0], first, tokens, rows.columns, heads,
        WIDTH=width, LOCAL=rows.window, SPLIT=tile.split, BLOCK_K=tile.rows, BLOCK_H=_heads(q), BLOCK_C=block_c,
        HEAD_BLOCKS=triton.cdiv(heads, _heads(q)),
        STAGES=tile.stages, num_warps=tile.warps,
    )  # fmt: skip
    dpool += parts.sum(0)


def _add_picked(
    q: Tensor, dout: Tensor, weight: Tensor, slope: Tensor, rows: _Rows, first: int, tokens: int, *, dpool: Tensor
) -> None:
    heads, width = q.shape[1:]
    tile = attend_blocks(q.dtype).picked
    if heads > _heads(q):
        # Queries of several blocks of heads do not stay in shared memory.
        tile = replace(tile, stages=1, channels=128)
    block_c = min(_channels(width), tile.channels)
    topk = rows.picks.shape[1]
    parts = torch.empty(tokens, topk, width, dtype=q.dtype, device=q.device)
    key_kernels.of_picks[tokens, triton.cdiv(width, block_c)](
        q, dout, weight, slope, rows.count, parts, first, rows.columns, topk, heads,
        WIDTH=width, LOCAL=rows.window, BLOCK_N=tile.rows, BLOCK_H=_heads(q), BLOCK_C=block_c,
        HEAD_BLOCKS=triton.cdiv(heads, _heads(q)),
        STAGES=tile.stages, num_warps=tile.warps,
    )  # fmt: skip
    add_by_row(parts, rows.picks[first : first + tokens], to=dpool)


@torch.no_grad()
def _mass(q: Tensor, table: Tensor, lse: Tensor, rows: _Rows, *, num_keys: int) -> Tensor:
    mass = torch.empty(rows.picks.shape, dtype=torch.float32, device=q.device)
    blocks = attend_blocks(q.dtype)
    if mass.numel():
        kernels.pick_mass[q.shape[0], triton.cdiv(mass.shape[1], blocks.mass.rows)](
            q.contiguous(), table.contiguous(), lse, rows.count, rows.picks, mass, num_keys, table.shape[0],
            mass.shape[1], q.shape[1], q.shape[2] ** -0.5 * _LOG2_E,
            WIDTH=q.shape[2], BLOCK_H=_heads(q), BLOCK_D=_channels(q.shape[2]),
            BLOCK_N=blocks.mass.rows, num_warps=blocks.mass.warps,
        )  # fmt: skip
    return mass


def _is_for_hopper(q: Tensor) -> bool:
    """Whether the kernels written for Hopper take these queries."""
    return (
        q.is_cuda
        and q.shape[1] % 64 == 0
        and q.shape[2] == 512
        and q.element_size() == 2
        and torch.cuda.get_device_capability(q.device)[0] == 9
    )


_LOG2_E = 1.4426950408889634


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


def _heads(q: Tensor) -> int:
    """Heads of a program: a power of two from 16, the least that a matrix product takes."""
    return min(max(int(triton.next_power_of_2(q.shape[1])), 16), attend_blocks(q.dtype).heads)


def _channels(width: int) -> int:
    return max(int(triton.next_power_of_2(width)), 16)
