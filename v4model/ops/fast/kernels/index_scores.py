"""The indexer's scores of picked rows: all heads of a token at once, so that [T, heads, picks] is never held."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _of_token(t, num_heads, WIDTH: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr):
    """Where q [BLOCK_H, BLOCK_D] and gate [BLOCK_H] of a token stand, each with its mask."""
    head = tl.arange(0, BLOCK_H)
    channel = tl.arange(0, BLOCK_D)
    there = head < num_heads
    of_head = t * num_heads + head
    return of_head[:, None] * WIDTH + channel[None, :], there[:, None] & (channel < WIDTH)[None, :], of_head, there


@triton.jit
def _count(rows_ptr, columns, BLOCK_K: tl.constexpr):
    """Columns up to the last one that has a row."""
    column = tl.arange(0, BLOCK_K)
    row = tl.load(rows_ptr + column, mask=column < columns, other=-1)
    return tl.max(tl.where(row >= 0, column + 1, 0), 0)


@triton.jit
def _keys(keys_ptr, row, num_rows, WIDTH: tl.constexpr, BLOCK_D: tl.constexpr):
    """[BLOCK_N, BLOCK_D], 0 where there is no row; nothing outside the keys is read."""
    channel = tl.arange(0, BLOCK_D)
    inside = (row >= 0) & (row < num_rows)
    at = row.to(tl.int64)[:, None] * WIDTH + channel[None, :]
    return tl.load(keys_ptr + at, mask=inside[:, None] & (channel < WIDTH)[None, :], other=0.0)


@triton.jit
def _dots(q, keys, row, num_rows):
    """q . key [BLOCK_H, BLOCK_N]: NaN (loud) for a row outside the keys."""
    dots = tl.dot(q, tl.trans(keys), input_precision="ieee")
    return dots + tl.where(row >= num_rows, float("nan"), 0.0)[None, :]


@triton.jit(do_not_specialize=["num_rows", "columns"])
def forward(
    q_ptr, gate_ptr, keys_ptr, rows_ptr, out_ptr, num_rows, columns, num_heads,
    WIDTH: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """out [T, columns]: sum over heads of gate * ReLU(q . key); -inf where the row is -1."""
    t = tl.program_id(0).to(tl.int64)
    rows_ptr += t * columns
    out_ptr += t * columns
    at, fits, of_head, there = _of_token(t, num_heads, WIDTH, BLOCK_H, BLOCK_D)
    q = tl.load(q_ptr + at, mask=fits, other=0.0)
    gate = tl.load(gate_ptr + of_head, mask=there, other=0.0).to(tl.float32)
    count = _count(rows_ptr, columns, BLOCK_K)
    for first in tl.range(0, count, BLOCK_N, num_stages=STAGES):
        column = first + tl.arange(0, BLOCK_N)
        row = tl.load(rows_ptr + column, mask=column < count, other=-1)
        dots = _dots(q, _keys(keys_ptr, row, num_rows, WIDTH, BLOCK_D), row, num_rows)
        # Not the larger one of 0: that would lose a NaN.
        score = tl.sum(gate[:, None] * tl.where(dots <= 0.0, 0.0, dots), 0)
        tl.store(out_ptr + column, tl.where(row >= 0, score, float("-inf")), mask=column < count)
    column = tl.arange(0, BLOCK_K)
    behind = (column >= count) & (column < columns)
    tl.store(out_ptr + column, tl.full([BLOCK_K], float("-inf"), tl.float32), mask=behind)


@triton.jit(do_not_specialize=["num_rows", "columns", "first_token"])
def backward(
    q_ptr, gate_ptr, keys_ptr, rows_ptr, dout_ptr, dq_ptr, dgate_ptr, part_ptr,
    num_rows, columns, first_token, num_heads,
    WIDTH: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """dq and dgate of tokens from `first_token` on, from products that are made again.

    part [tokens of this launch, columns, WIDTH]: what each token sends to the key behind each of its picks.
    """
    own = tl.program_id(0).to(tl.int64)
    t = own + first_token
    rows_ptr += t * columns
    at, fits, of_head, there = _of_token(t, num_heads, WIDTH, BLOCK_H, BLOCK_D)
    q = tl.load(q_ptr + at, mask=fits, other=0.0)
    gate = tl.load(gate_ptr + of_head, mask=there, other=0.0).to(tl.float32)
    dq = tl.zeros([BLOCK_H, BLOCK_D], tl.float32)
    dgate = tl.zeros([BLOCK_H], tl.float32)
    channel = tl.arange(0, BLOCK_D)
    for first in tl.range(0, _count(rows_ptr, columns, BLOCK_K), BLOCK_N, num_stages=STAGES):
        column = first + tl.arange(0, BLOCK_N)
        row = tl.load(rows_ptr + column, mask=column < columns, other=-1)
        dout = tl.load(dout_ptr + t * columns + column, mask=row >= 0, other=0.0).to(tl.float32)
        keys = _keys(keys_ptr, row, num_rows, WIDTH, BLOCK_D)
        dots = _dots(q, keys, row, num_rows)
        closed = dots <= 0.0
        dgate += tl.sum(tl.where(closed, 0.0, dots) * dout[None, :], 1)
        slope = tl.where(closed, 0.0, gate[:, None] * dout[None, :]).to(keys.dtype)
        dq = tl.dot(slope, keys, dq, input_precision="ieee")
        part = tl.dot(tl.trans(slope), q, input_precision="ieee")
        to = part_ptr + (own * columns + column)[:, None] * WIDTH + channel[None, :]
        tl.store(to, part.to(part_ptr.dtype.element_ty), mask=(row >= 0)[:, None] & (channel < WIDTH)[None, :])
    tl.store(dq_ptr + at, dq.to(dq_ptr.dtype.element_ty), mask=fits)
    tl.store(dgate_ptr + of_head, dgate, mask=there)
