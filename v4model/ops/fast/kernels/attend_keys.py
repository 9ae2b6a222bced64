"""The keys' gradient, without atomics: the same bits every time, whatever order the programs run in.

Contiguous rows (the local window, HCA's pooled rows) are owned by one program, which goes over the tokens that see
them. Picked rows get each token's contribution written down first; then one program a row adds up its own, in order.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _add_token(
    acc, own, column, seen, weight_ptr, slope_ptr, q_ptr, dout_ptr, t, columns, head, num_heads, channel,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """acc [BLOCK_K, BLOCK_C] + what some heads of token t send to the rows at its `column`s."""
    there = head < num_heads
    place = (tl.cast(own, tl.int64) * columns + column)[:, None] * num_heads + head[None, :]
    mask = seen[:, None] & there[None, :]
    at = (tl.cast(t, tl.int64) * num_heads + head)[:, None] * WIDTH + channel[None, :]
    fits = there[:, None] & (channel < WIDTH)[None, :]
    slope = tl.load(slope_ptr + place, mask=mask, other=0.0)
    q = tl.load(q_ptr + at, mask=fits, other=0.0)
    weight = tl.load(weight_ptr + place, mask=mask, other=0.0)
    dout = tl.load(dout_ptr + at, mask=fits, other=0.0)
    if slope.dtype == tl.float32:
        # A sum of each token's own: one running sum over all tokens and heads would lose what float32 is chosen for.
        of_token = tl.dot(weight, dout, tl.dot(slope, q, input_precision="ieee"), input_precision="ieee")
        return acc + tl.where((channel < WIDTH)[None, :], of_token, 0.0)
    return tl.dot(weight, dout, tl.dot(slope, q, acc))


@triton.jit(do_not_specialize=["first_query", "first_key", "num_keys", "first", "tokens", "columns"])
def of_window(
    q_ptr, dout_ptr, weight_ptr, slope_ptr, lo_ptr, dtable_ptr,
    first_query, first_key, num_keys, first, tokens, columns, num_heads,
    WIDTH: tl.constexpr, LOCAL: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_H: tl.constexpr,
    HEAD_BLOCKS: tl.constexpr, BLOCK_C: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Adds to dtable [., WIDTH] float32 what the launch's tokens send to the local rows from `first_key` on."""
    key = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    key_token = first_key + key
    # The launch's tokens that may see one of these keys.
    begin = tl.maximum(first_key + tl.program_id(0) * BLOCK_K - first_query, first)
    end = tl.minimum(first_key + (tl.program_id(0) + 1) * BLOCK_K - 1 + LOCAL - first_query, first + tokens)
    if begin < end:
        acc = tl.zeros([BLOCK_K, BLOCK_C], tl.float32)
        for step in tl.range(begin * HEAD_BLOCKS, end * HEAD_BLOCKS, num_stages=STAGES):
            t = step // HEAD_BLOCKS
            head = step % HEAD_BLOCKS * BLOCK_H + tl.arange(0, BLOCK_H)
            token = first_query + t
            lo = tl.load(lo_ptr + t).to(tl.int32)
            seen = (key_token >= lo) & (key_token <= token) & (key < num_keys)
            column = key_token - token + LOCAL - 1
            acc = _add_token(
                acc, t - first, column, seen, weight_ptr, slope_ptr, q_ptr, dout_ptr, t, columns, head, num_heads,
                channel, WIDTH,
            )  # fmt: skip
        at = dtable_ptr + key.to(tl.int64)[:, None] * WIDTH + channel[None, :]
        fits = (key < num_keys)[:, None] & (channel < WIDTH)[None, :]
        tl.store(at, acc + tl.load(at, mask=fits, other=0.0), mask=fits)


@triton.jit(do_not_specialize=["num_pooled", "first", "tokens", "columns"])
def of_visible(
    q_ptr, dout_ptr, weight_ptr, slope_ptr, base_ptr, count_ptr, part_ptr,
    num_pooled, first, tokens, columns, num_heads,
    WIDTH: tl.constexpr, LOCAL: tl.constexpr, SPLIT: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_H: tl.constexpr,
    HEAD_BLOCKS: tl.constexpr, BLOCK_C: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """part [splits, pooled rows, WIDTH] float32: what each run of SPLIT tokens sends to HCA's rows."""
    split = tl.program_id(1)
    row = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    channel = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
    begin = first + split * SPLIT
    end = tl.minimum(begin + SPLIT, first + tokens)
    # Of the run's tokens only those from the first to the last that sees one of the rows.
    tokens_of_run = begin + tl.arange(0, SPLIT)
    bases = tl.load(base_ptr + tokens_of_run, mask=tokens_of_run < end, other=0).to(tl.int32)
    counts = tl.load(count_ptr + tokens_of_run, mask=tokens_of_run < end, other=0).to(tl.int32)
    low = tl.program_id(0) * BLOCK_K
    meets = (counts > 0) & (bases < low + BLOCK_K) & (bases + counts > low)
    begin = tl.min(tl.where(meets, tokens_of_run, 1 << 24))
    end = tl.max(tl.where(meets, tokens_of_run, -1)) + 1
    acc = tl.zeros([BLOCK_K, BLOCK_C], tl.float32)
    for step in tl.range(begin * HEAD_BLOCKS, end * HEAD_BLOCKS, num_stages=STAGES):
        t = step // HEAD_BLOCKS
        head = step % HEAD_BLOCKS * BLOCK_H + tl.arange(0, BLOCK_H)
        base = tl.load(base_ptr + t).to(tl.int32)
        count = tl.load(count_ptr + t).to(tl.int32)
        seen = (row >= base) & (row < base + count)
        acc = _add_token(
            acc, t - first, row - base + LOCAL, seen, weight_ptr, slope_ptr, q_ptr, dout_ptr, t, columns, head,
            num_heads, channel, WIDTH,
        )  # fmt: skip
    at = part_ptr + (tl.cast(split, tl.int64) * num_pooled + row)[:, None] * WIDTH + channel[None, :]
    tl.store(at, acc, mask=(row < num_pooled)[:, None] & (channel < WIDTH)[None, :])


@triton.jit(do_not_specialize=["first", "columns", "stride_picks"])
def of_picks(
    q_ptr, dout_ptr, weight_ptr, slope_ptr, count_ptr, part_ptr,
    first, columns, stride_picks, num_heads,
    WIDTH: tl.constexpr, LOCAL: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_H: tl.constexpr, HEAD_BLOCKS: tl.constexpr,
    BLOCK_C: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """part [tokens of this launch, k, WIDTH]: what each token sends to each of its picks."""
    own = tl.program_id(0)
    t = own + first
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    count = tl.load(count_ptr + t).to(tl.int32)
    if HEAD_BLOCKS == 1:
        # q and dout stay where they are for all picks.
        head = tl.arange(0, BLOCK_H)
        there = head < num_heads
        at = (t.to(tl.int64) * num_heads + head)[:, None] * WIDTH + channel[None, :]
        fits = there[:, None] & (channel < WIDTH)[None, :]
        q = tl.load(q_ptr + at, mask=fits, other=0.0)
        dout = tl.load(dout_ptr + at, mask=fits, other=0.0)
    for first_slot in tl.range(0, count, BLOCK_N, num_stages=STAGES):
        slot = first_slot + tl.arange(0, BLOCK_N)
        acc = tl.zeros([BLOCK_N, BLOCK_C], tl.float32)
        if HEAD_BLOCKS == 1:
            mask = (slot < count)[:, None] & there[None, :]
            place = (own.to(tl.int64) * columns + LOCAL + slot)[:, None] * num_heads + head[None, :]
            acc = tl.dot(tl.load(slope_ptr + place, mask=mask, other=0.0), q, acc, input_precision="ieee")
            acc = tl.dot(tl.load(weight_ptr + place, mask=mask, other=0.0), dout, acc, input_precision="ieee")
        else:
            for head_block in tl.static_range(HEAD_BLOCKS):
                acc = _add_token(
                    acc, own, LOCAL + slot, slot < count, weight_ptr, slope_ptr, q_ptr, dout_ptr, t, columns,
                    head_block * BLOCK_H + tl.arange(0, BLOCK_H), num_heads, channel, WIDTH,
                )  # fmt: skip
        to = part_ptr + (own.to(tl.int64) * stride_picks + slot)[:, None] * WIDTH + channel[None, :]
        tl.store(to, acc.to(part_ptr.dtype.element_ty), mask=(slot < count)[:, None] & (channel < WIDTH)[None, :])


@triton.jit
def sum_by_row(
    part_ptr, entry_ptr, bound_ptr, dpool_ptr,
    WIDTH: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """dpool[row] += sum of part[entry] for the row's entries [bound[row], bound[row + 1]), in their order."""
    row = tl.program_id(0)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    begin, end = tl.load(bound_ptr + row), tl.load(bound_ptr + row + 1)
    if begin < end:
        acc = tl.zeros([BLOCK_C], tl.float32)
        for first in tl.range(begin, end, BLOCK_E, num_stages=STAGES):
            place = first + tl.arange(0, BLOCK_E)
            entry = tl.load(entry_ptr + place, mask=place < end, other=0)
            at = part_ptr + entry.to(tl.int64)[:, None] * WIDTH + channel[None, :]
            fits = (place < end)[:, None] & (channel < WIDTH)[None, :]
            acc += tl.sum(tl.load(at, mask=fits, other=0.0).to(tl.float32), 0)
        at = dpool_ptr + row.to(tl.int64) * WIDTH + channel
        tl.store(at, acc + tl.load(at, mask=channel < WIDTH, other=0.0), mask=channel < WIDTH)
