"""Attention over index-driven rows: forward, the queries' gradient, and the mass of each pick.

A program holds all heads of a token (64 at once) as the rows of its matrix products, since all of them read the same
keys. Its columns are `LOCAL` places for the tokens up to its own, then the pooled rows; both are rows of one table.
"""

from __future__ import annotations

import triton
import triton.language as tl

DENSE, HCA, CSA = 0, 1, 2
"""Which pooled rows a query reads: none, all visible ones, or those that were picked."""


@triton.jit
def _columns(
    first, token, lo, base, count, picks_ptr, first_key, num_keys,
    LOCAL: tl.constexpr, KIND: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Rows of the table behind columns [first, first + BLOCK_N), and which of them the query sees."""
    column = first + tl.arange(0, BLOCK_N)
    in_window = column < LOCAL
    row = token - (LOCAL - 1) + column
    seen = in_window & (row >= lo) & (row <= token)
    row = row - first_key
    if KIND == 1:
        pooled = base + (column - LOCAL)
        seen = seen | ((column >= LOCAL) & (column < LOCAL + count))
        row = tl.where(in_window, row, num_keys + pooled)
    elif KIND == 2:
        pooled = tl.load(picks_ptr + (column - LOCAL), mask=(column >= LOCAL) & (column < LOCAL + count), other=-1)
        seen = seen | (pooled >= 0)
        row = tl.where(in_window, row, num_keys + pooled)
    return row, seen


@triton.jit
def _keys(table_ptr, row, seen, num_rows, WIDTH: tl.constexpr, BLOCK_D: tl.constexpr):
    """[BLOCK_N, BLOCK_D] rows of the table, 0 where not seen; nothing outside the table is read."""
    channel = tl.arange(0, BLOCK_D)
    there = seen & (row >= 0) & (row < num_rows)
    mask = there[:, None]
    if WIDTH != BLOCK_D:
        mask = mask & (channel < WIDTH)[None, :]
    return tl.load(table_ptr + row[:, None] * WIDTH + channel[None, :], mask=mask, other=0.0)


@triton.jit
def _of_heads(ptr, token, head, num_heads, WIDTH: tl.constexpr, BLOCK_D: tl.constexpr):
    """Pointers and mask of [BLOCK_H, BLOCK_D] of a token in a tensor [T, H, WIDTH]; T * H * WIDTH may pass 2^31."""
    channel = tl.arange(0, BLOCK_D)
    row = token.to(tl.int64) * num_heads + head
    mask = (head < num_heads)[:, None] & (channel < WIDTH)[None, :]
    return ptr + row[:, None] * WIDTH + channel[None, :], mask


@triton.jit
def _scores(q, keys, row, seen, num_rows, scale_log2):
    """Scores in powers of 2: -inf where not seen, NaN (loud) where a row lies outside the table."""
    scores = tl.dot(q, tl.trans(keys), input_precision="ieee") * scale_log2
    outside = seen & ((row < 0) | (row >= num_rows))
    bias = tl.where(outside, float("nan"), tl.where(seen, 0.0, float("-inf")))
    return scores + bias[None, :]


@triton.jit(do_not_specialize=["first_query", "first_key", "num_keys", "num_rows", "stride_picks"])
def forward(
    q_ptr, table_ptr, sink_ptr, lo_ptr, base_ptr, count_ptr, picks_ptr, out_ptr, lse_ptr,
    first_query, first_key, num_keys, num_rows, stride_picks, num_heads, scale_log2,
    WIDTH: tl.constexpr, LOCAL: tl.constexpr, KIND: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """out [T, H, WIDTH] and the logarithm to base 2 of each softmax's sum, [T, H], the sink counted in."""
    t = tl.program_id(0)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    token = t + first_query
    lo = tl.load(lo_ptr + t).to(tl.int32)
    count = 0
    base = 0
    if KIND != 0:
        count = tl.load(count_ptr + t).to(tl.int32)
        base = tl.load(base_ptr + t).to(tl.int32)
    picks_ptr += t.to(tl.int64) * stride_picks
    q_at, mask = _of_heads(q_ptr, t, head, num_heads, WIDTH, BLOCK_D)
    q = tl.load(q_at, mask=mask, other=0.0)
    best = tl.load(sink_ptr + head, mask=head < num_heads, other=0.0).to(tl.float32) * 1.4426950408889634
    total = tl.full([BLOCK_H], 1.0, tl.float32)
    out = tl.zeros([BLOCK_H, BLOCK_D], tl.float32)
    begin = (lo - token + LOCAL - 1) // BLOCK_N * BLOCK_N
    for first in tl.range(begin, LOCAL + count, BLOCK_N, num_stages=STAGES):
        row, seen = _columns(first, token, lo, base, count, picks_ptr, first_key, num_keys, LOCAL, KIND, BLOCK_N)
        keys = _keys(table_ptr, row, seen, num_rows, WIDTH, BLOCK_D)
        scores = _scores(q, keys, row, seen, num_rows, scale_log2)
        higher = tl.maximum(best, tl.max(scores, 1))
        shrink = tl.exp2(best - higher)
        weight = tl.exp2(scores - higher[:, None])
        total = total * shrink + tl.sum(weight, 1)
        out = tl.dot(weight.to(keys.dtype), keys, out * shrink[:, None], input_precision="ieee")
        best = higher
    out_at, mask = _of_heads(out_ptr, t, head, num_heads, WIDTH, BLOCK_D)
    tl.store(out_at, (out / total[:, None]).to(out_ptr.dtype.element_ty), mask=mask)
    tl.store(lse_ptr + t.to(tl.int64) * num_heads + head, best + tl.log2(total), mask=head < num_heads)


@triton.jit(do_not_specialize=["num_keys", "num_rows", "stride_picks"])
def pick_mass(
    q_ptr, table_ptr, lse_ptr, count_ptr, picks_ptr, mass_ptr,
    num_keys, num_rows, stride_picks, num_heads, scale_log2,
    WIDTH: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """mass [T, k]: each pick's probability, summed over heads; 0 where none is picked."""
    t = tl.program_id(0)
    slot = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    at = t.to(tl.int64) * stride_picks + slot
    pick = tl.load(picks_ptr + at, mask=slot < stride_picks, other=-1)
    seen = pick >= 0
    mass = tl.zeros([BLOCK_N], tl.float32)
    if tl.program_id(1) * BLOCK_N < tl.load(count_ptr + t):
        row = num_keys + pick
        keys = _keys(table_ptr, row, seen, num_rows, WIDTH, BLOCK_D)
        for first in tl.range(0, num_heads, BLOCK_H, num_stages=1):
            head = first + tl.arange(0, BLOCK_H)
            q_at, mask = _of_heads(q_ptr, t, head, num_heads, WIDTH, BLOCK_D)
            scores = _scores(tl.load(q_at, mask=mask, other=0.0), keys, row, seen, num_rows, scale_log2)
            lse = tl.load(lse_ptr + t.to(tl.int64) * num_heads + head, mask=head < num_heads, other=float("inf"))
            mass += tl.sum(tl.exp2(scores - lse[:, None]), 0)
    tl.store(mass_ptr + at, mass, mask=slot < stride_picks)


@triton.jit(do_not_specialize=["first_query", "first_key", "num_keys", "num_rows", "stride_picks", "first", "columns"])
def backward_queries(
    q_ptr, table_ptr, lse_ptr, out_ptr, dout_ptr, lo_ptr, base_ptr, count_ptr, picks_ptr,
    dq_ptr, delta_ptr, weight_ptr, slope_ptr,
    first_query, first_key, num_keys, num_rows, stride_picks, first, columns, num_heads, scale,
    WIDTH: tl.constexpr, LOCAL: tl.constexpr, KIND: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_O: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """dq of tokens from `first` on; for the keys' gradient it leaves weights and slopes of the scores behind.

    weight, slope: [tokens of this launch, columns, H], the softmax's probability and the gradient of q . key. delta
    [T, H]: the sum of weights times their gradients, of which the sink's gradient is made. It is dout * out as well,
    and used as such here, but out was rounded, which a sum over many tokens would show.
    """
    own = tl.program_id(0)
    t = own + first
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    there = head < num_heads
    token = t + first_query
    lo = tl.load(lo_ptr + t).to(tl.int32)
    count = 0
    base = 0
    if KIND != 0:
        count = tl.load(count_ptr + t).to(tl.int32)
        base = tl.load(base_ptr + t).to(tl.int32)
    picks_ptr += t.to(tl.int64) * stride_picks
    of_token = t.to(tl.int64) * num_heads + head
    delta = tl.zeros([BLOCK_H], tl.float32)
    for part in range(0, BLOCK_D, BLOCK_O):
        channel = part + tl.arange(0, BLOCK_O)
        at = of_token[:, None] * WIDTH + channel[None, :]
        fits = there[:, None] & (channel < WIDTH)[None, :]
        product = tl.load(out_ptr + at, mask=fits, other=0.0).to(tl.float32)
        product *= tl.load(dout_ptr + at, mask=fits, other=0.0).to(tl.float32)
        delta += tl.sum(product, 1)
    q_at, mask = _of_heads(q_ptr, t, head, num_heads, WIDTH, BLOCK_D)
    q = tl.load(q_at, mask=mask, other=0.0)
    dout_at, mask = _of_heads(dout_ptr, t, head, num_heads, WIDTH, BLOCK_D)
    dout = tl.load(dout_at, mask=mask, other=0.0)
    lse = tl.load(lse_ptr + of_token, mask=there, other=float("inf"))
    dq = tl.zeros([BLOCK_H, BLOCK_D], tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    begin = (lo - token + LOCAL - 1) // BLOCK_N * BLOCK_N
    for column in tl.range(begin, LOCAL + count, BLOCK_N, num_stages=STAGES):
        row, seen = _columns(column, token, lo, base, count, picks_ptr, first_key, num_keys, LOCAL, KIND, BLOCK_N)
        keys = _keys(table_ptr, row, seen, num_rows, WIDTH, BLOCK_D)
        scores = _scores(q, keys, row, seen, num_rows, scale * 1.4426950408889634)
        weight = tl.exp2(scores - lse[:, None])
        dweight = tl.dot(dout, tl.trans(keys), input_precision="ieee")
        total += tl.sum(weight * dweight, 1)
        slope = (weight * (dweight - delta[:, None]) * scale).to(keys.dtype)
        dq = tl.dot(slope, keys, dq, input_precision="ieee")
        place = tl.cast(own, tl.int64) * columns + column + tl.arange(0, BLOCK_N)
        at = place[None, :] * num_heads + head[:, None]
        tl.store(weight_ptr + at, weight.to(keys.dtype), mask=there[:, None])
        tl.store(slope_ptr + at, slope, mask=there[:, None])
    tl.store(delta_ptr + of_token, total, mask=there)
    dq_at, mask = _of_heads(dq_ptr, t, head, num_heads, WIDTH, BLOCK_D)
    tl.store(dq_at, dq.to(dq_ptr.dtype.element_ty), mask=mask)
