"""The indexer's scores of visible rows, and the best of them without a sort."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["first", "tokens", "num_rows", "columns"])
def score(
    q_ptr, gate_ptr, keys_ptr, base_ptr, count_ptr, out_ptr,
    first, tokens, num_rows, columns, num_heads,
    WIDTH: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_W: tl.constexpr, BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """out [tokens of this launch, columns]: column c of token t is its score of row base + c, if c < count.

    Other columns are left as they are.
    """
    own = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    t = (own + first).to(tl.int64)
    there = own < tokens
    base = tl.load(base_ptr + t, mask=there, other=0).to(tl.int32)
    count = tl.load(count_ptr + t, mask=there, other=0).to(tl.int32)
    # The rows that any of these tokens sees lie side by side: samples do, in the pack and in the pool.
    low = tl.min(tl.where(count > 0, base, num_rows)) + tl.program_id(1) * BLOCK_W
    high = tl.max(base + count)
    if low < high:
        row = low + tl.arange(0, BLOCK_W)
        channel = tl.arange(0, BLOCK_D)
        fits = (row < num_rows)[:, None] & (channel < WIDTH)[None, :]
        keys = tl.load(keys_ptr + row[:, None] * WIDTH + channel[None, :], mask=fits, other=0.0)
        total = tl.zeros([BLOCK_T, BLOCK_W], tl.float32)
        for head in tl.range(0, num_heads, num_stages=STAGES):
            at = (t * num_heads + head)[:, None] * WIDTH + channel[None, :]
            q = tl.load(q_ptr + at, mask=there[:, None] & (channel < WIDTH)[None, :], other=0.0)
            gate = tl.load(gate_ptr + t * num_heads + head, mask=there, other=0.0).to(tl.float32)
            dots = tl.dot(q, tl.trans(keys), input_precision="ieee")
            total += gate[:, None] * tl.maximum(dots, 0.0)
        column = row[None, :] - base[:, None]
        at = own.to(tl.int64)[:, None] * columns + column
        tl.store(out_ptr + at, total, mask=there[:, None] & (column >= 0) & (column < count[:, None]))


@triton.jit
def _ordered(score, visible):
    """Scores as unsigned integers in the same order, 0 (below all of them) where not visible; +0 and -0 are one."""
    bits = (score + 0.0).to(tl.int32, bitcast=True)
    # The smallest int32, as a mask: it turns the order of signed numbers into that of unsigned ones.
    key = tl.where(bits < 0, ~bits, bits ^ -2147483648).to(tl.uint32, bitcast=True)
    return tl.where(visible, key, tl.full([], 0, tl.uint32))


@triton.jit(do_not_specialize=["first", "columns"])
def best(
    scores_ptr, base_ptr, count_ptr, picks_ptr, picked_ptr, first, columns,
    TOPK: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK: tl.constexpr, PART: tl.constexpr, ONE_BLOCK: tl.constexpr,
):  # fmt: skip
    """The TOPK best columns of each token in ascending order: rows and scores; -1 and -inf behind the last.

    The TOPK-th best score is found bit by bit; of the columns that have exactly it, the first ones are taken.
    """
    own = tl.program_id(0)
    t = own + first
    base = tl.load(base_ptr + t).to(tl.int32)
    count = tl.load(count_ptr + t).to(tl.int32)
    scores_ptr += own.to(tl.int64) * columns
    picks_ptr += t.to(tl.int64) * TOPK
    picked_ptr += t.to(tl.int64) * TOPK
    slot = tl.arange(0, BLOCK_K)
    if count <= TOPK:
        of_slot = tl.load(scores_ptr + slot, mask=slot < count, other=float("-inf"))
        tl.store(picks_ptr + slot, tl.where(slot < count, base + slot, -1), mask=slot < TOPK)
        tl.store(picked_ptr + slot, of_slot + 0.0, mask=slot < TOPK)
    else:
        column = tl.arange(0, BLOCK)
        threshold = tl.full([], 0, tl.uint32)
        if ONE_BLOCK:
            keys = _ordered(tl.load(scores_ptr + column, mask=column < count, other=0.0), column < count)
            for bit in range(32):
                higher = threshold | (tl.full([], 1, tl.uint32) << tl.cast(31 - bit, tl.uint32))
                enough = tl.sum((keys >= higher).to(tl.int32)) >= TOPK
                threshold = tl.where(enough, higher, threshold)
            above = tl.sum((keys > threshold).to(tl.int32))
        else:
            for bit in range(32):
                higher = threshold | (tl.full([], 1, tl.uint32) << tl.cast(31 - bit, tl.uint32))
                reached = 0
                for begin in range(0, count, BLOCK):
                    there = begin + column < count
                    keys = _ordered(tl.load(scores_ptr + begin + column, mask=there, other=0.0), there)
                    reached += tl.sum((keys >= higher).to(tl.int32))
                threshold = tl.where(reached >= TOPK, higher, threshold)
            above = 0
            for begin in range(0, count, BLOCK):
                there = begin + column < count
                keys = _ordered(tl.load(scores_ptr + begin + column, mask=there, other=0.0), there)
                above += tl.sum((keys > threshold).to(tl.int32))
        # Read once more, in small parts: places and pointers of a whole row would not fit into registers.
        taken = 0
        equals = 0
        for begin in range(0, count, PART):
            of_part = begin + tl.arange(0, PART)
            there = of_part < count
            score = tl.load(scores_ptr + of_part, mask=there, other=0.0)
            key = _ordered(score, there)
            missing = TOPK - above
            more, equal = _take(of_part, score, key, threshold, missing, equals, taken, base, picks_ptr, picked_ptr)
            taken += more
            equals += equal


@triton.jit
def _take(column, score, key, threshold, missing, equals, taken, base, picks_ptr, picked_ptr):
    """Writes the columns above the threshold and the first `missing` equal to it; `equals`, `taken` came before."""
    equal = (key == threshold).to(tl.int32)
    chosen = (key > threshold) | ((equal > 0) & (tl.cumsum(equal, 0) + equals <= missing))
    place = tl.cumsum(chosen.to(tl.int32), 0) - 1 + taken
    tl.store(picks_ptr + place, base + column, mask=chosen)
    tl.store(picked_ptr + place, score + 0.0, mask=chosen)
    return tl.sum(chosen.to(tl.int32)), tl.sum(equal)
