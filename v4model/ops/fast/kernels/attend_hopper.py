"""The heavy kernels of attention written for Hopper in Gluon: what is copied, multiplied and waited for, and when.

The same as `forward` and `backward_queries` of `kernels.attend`, for blocks of 64 heads, 2 bytes a number and a WIDTH
of 512. Triton's own schedule copies the next keys only after it is done with these, and gives both warp groups the same
scores to compute because a second product follows the first; here copies run beside the products, and each warp group
has half of the keys (scores) or half of the channels (values).
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

HEADS, WARPS = 64, 8


@gluon.jit
def _picks(first, count, picks_ptr, LOCAL: gl.constexpr, KIND: gl.constexpr, BLOCK_N: gl.constexpr, L: gl.constexpr):
    slot = first - LOCAL + gl.arange(0, BLOCK_N, layout=L)
    picks = gl.full([BLOCK_N], -1, gl.int32, layout=L)
    if KIND == 2:
        picks = gl.load(picks_ptr + slot, mask=(slot >= 0) & (slot < count), other=-1)
    return picks


@gluon.jit
def _columns(
    first, picks, token, lo, base, count, first_key, num_keys,
    LOCAL: gl.constexpr, KIND: gl.constexpr, BLOCK_N: gl.constexpr, L: gl.constexpr,
):  # fmt: skip
    """As `kernels.attend._columns`, in a layout."""
    column = first + gl.arange(0, BLOCK_N, layout=L)
    in_window = column < LOCAL
    row = token - (LOCAL - 1) + column
    seen = in_window & (row >= lo) & (row <= token)
    row = row - first_key
    if KIND == 1:
        seen = seen | ((column >= LOCAL) & (column < LOCAL + count))
        row = gl.where(in_window, row, num_keys + base + (column - LOCAL))
    elif KIND == 2:
        seen = seen | (picks >= 0)
        row = gl.where(in_window, row, num_keys + picks)
    return row, seen


@gluon.jit
def _copy_keys(to, table_ptr, row, seen, num_rows, WIDTH: gl.constexpr, COPY: gl.constexpr):
    channel = gl.arange(0, WIDTH, layout=gl.SliceLayout(0, COPY))
    there = seen & (row >= 0) & (row < num_rows)
    at = table_ptr + gl.expand_dims(row * WIDTH, 1) + gl.expand_dims(channel, 0)
    async_copy.async_copy_global_to_shared(to, at, mask=gl.expand_dims(there, 1))
    async_copy.commit_group()


@gluon.jit
def _copy_heads(to, ptr, t, first_head, num_heads, WIDTH: gl.constexpr, COPY: gl.constexpr):
    head = first_head + gl.arange(0, 64, layout=gl.SliceLayout(1, COPY))
    channel = gl.arange(0, WIDTH, layout=gl.SliceLayout(0, COPY))
    row = t.to(gl.int64) * num_heads + first_head
    at = ptr + row * WIDTH + gl.expand_dims((head - first_head) * WIDTH, 1) + gl.expand_dims(channel, 0)
    async_copy.async_copy_global_to_shared(to, at)


@gluon.jit
def _store_heads(staged, ptr, t, first_head, num_heads, WIDTH: gl.constexpr, COPY: gl.constexpr):
    head = gl.arange(0, 64, layout=gl.SliceLayout(1, COPY))
    channel = gl.arange(0, WIDTH, layout=gl.SliceLayout(0, COPY))
    row = t.to(gl.int64) * num_heads + first_head
    at = ptr + row * WIDTH + gl.expand_dims(head * WIDTH, 1) + gl.expand_dims(channel, 0)
    gl.store(at, staged.load(COPY))


@gluon.jit
def _bias(row, seen, num_rows):
    outside = seen & ((row < 0) | (row >= num_rows))
    return gl.where(outside, float("nan"), gl.where(seen, 0.0, float("-inf")))


@gluon.jit
def _begin(
    t, first_query, lo_ptr, base_ptr, count_ptr, picks_ptr, stride_picks,
    LOCAL: gl.constexpr, KIND: gl.constexpr, BLOCK_N: gl.constexpr, ROWS: gl.constexpr,
):  # fmt: skip
    """Of a token: first local row, base and count of pooled ones, first column, picks of that and of the next block."""
    lo = gl.load(lo_ptr + t).to(gl.int32)
    count = 0
    base = 0
    if KIND != 0:
        count = gl.load(count_ptr + t).to(gl.int32)
        base = gl.load(base_ptr + t).to(gl.int32)
    begin = (lo - (t + first_query) + LOCAL - 1) // BLOCK_N * BLOCK_N
    of_token = picks_ptr + t.to(gl.int64) * stride_picks
    picks = _picks(begin, count, of_token, LOCAL, KIND, BLOCK_N, ROWS)
    return lo, base, count, begin, picks


@gluon.jit
def _weights(dots, bias, best, scale_log2):
    """Of a block of products: weights against the largest score so far, that score, and what came before shrinks by."""
    scores = dots * scale_log2 + gl.expand_dims(bias, 0)
    higher = gl.maximum(best, gl.max(scores, 1))
    return gl.exp2(scores - gl.expand_dims(higher, 1)), higher, gl.exp2(best - higher)


@gluon.jit(do_not_specialize=["first_query", "first_key", "num_keys", "num_rows", "stride_picks", "tokens"])
def forward(
    q_ptr, table_ptr, sink_ptr, lo_ptr, base_ptr, count_ptr, picks_ptr, out_ptr, lse_ptr,
    first_query, first_key, num_keys, num_rows, stride_picks, num_heads, scale_log2, tokens,
    WIDTH: gl.constexpr, LOCAL: gl.constexpr, KIND: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    """A program goes over many tokens; the next one's queries and first keys come while this one's output is made.

    The tensor cores go from the values of a block straight to the scores of the next one; what is between the two,
    copies and addresses, is done meanwhile, so that only the exponentials stand alone. No product is under way over a
    loop's edge: the compiler would then run every one by itself.
    """
    COPY: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [8, 1], [1, 0])
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, BLOCK_N // 2, 16])
    VALUES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, WIDTH // 2, 16])
    SHARED: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    ROWS: gl.constexpr = gl.SliceLayout(1, COPY)
    KEYS: gl.constexpr = gl.SliceLayout(0, SCORES)
    HEAD: gl.constexpr = gl.SliceLayout(1, SCORES)
    dtype: gl.constexpr = q_ptr.dtype.element_ty
    gl.static_assert(BLOCK_N == 64)  # an output is staged where keys were
    first_head = gl.program_id(1) * 64
    stride = gl.num_programs(0)
    queries = gl.allocate_shared_memory(dtype, [64, WIDTH], SHARED)
    keys = gl.allocate_shared_memory(dtype, [2, BLOCK_N, WIDTH], SHARED)
    weights = gl.allocate_shared_memory(dtype, [64, BLOCK_N], SHARED)
    head = first_head + gl.arange(0, 64, layout=HEAD)
    sink = gl.load(sink_ptr + head).to(gl.float32) * 1.4426950408889634
    zeros = gl.zeros([64, BLOCK_N], gl.float32, layout=SCORES)
    t = gl.program_id(0)
    lo, base, count, begin, picks = _begin(
        t, first_query, lo_ptr, base_ptr, count_ptr, picks_ptr, stride_picks, LOCAL, KIND, BLOCK_N, ROWS
    )
    _copy_heads(queries, q_ptr, t, first_head, num_heads, WIDTH, COPY)
    row, seen = _columns(
        begin, picks, t + first_query, lo, base, count, first_key, num_keys, LOCAL, KIND, BLOCK_N, ROWS
    )
    _copy_keys(keys.index(0), table_ptr, row, seen, num_rows, WIDTH, COPY)
    buffer = 0
    for t in range(gl.program_id(0), tokens, stride):
        token = t + first_query
        end = LOCAL + count
        of_token = picks_ptr + t.to(gl.int64) * stride_picks
        async_copy.wait_group(0)
        fence_async_shared()
        gl.thread_barrier()
        dots = warpgroup_mma(queries, keys.index(buffer).permute((1, 0)), zeros, use_acc=False, is_async=True)
        if begin + BLOCK_N < end:
            picks = _picks(begin + BLOCK_N, count, of_token, LOCAL, KIND, BLOCK_N, ROWS)
            row, seen = _columns(
                begin + BLOCK_N, picks, token, lo, base, count, first_key, num_keys, LOCAL, KIND, BLOCK_N, ROWS
            )
            _copy_keys(keys.index(1 - buffer), table_ptr, row, seen, num_rows, WIDTH, COPY)
        picks = _picks(begin + 2 * BLOCK_N, count, of_token, LOCAL, KIND, BLOCK_N, ROWS)
        here = _picks(begin, count, of_token, LOCAL, KIND, BLOCK_N, KEYS)
        key_row, key_seen = _columns(
            begin, here, token, lo, base, count, first_key, num_keys, LOCAL, KIND, BLOCK_N, KEYS
        )
        bias = _bias(key_row, key_seen, num_rows)
        following = gl.minimum(t + stride, tokens - 1)
        next_lo, next_base, next_count, next_begin, next_picks = _begin(
            following, first_query, lo_ptr, base_ptr, count_ptr, picks_ptr, stride_picks, LOCAL, KIND, BLOCK_N, ROWS
        )
        best = sink
        # Of each column by itself; they are added up at the end.
        total = gl.zeros([64, BLOCK_N], gl.float32, layout=SCORES)
        out = gl.zeros([64, WIDTH], gl.float32, layout=VALUES)
        dots = warpgroup_mma_wait(num_outstanding=0, deps=(dots,))
        # Every block that another one follows.
        for first in range(begin, end - BLOCK_N, BLOCK_N):
            weight, best, shrink = _weights(dots, bias, best, scale_log2)
            weights.store(weight.to(dtype))
            total = total * gl.expand_dims(shrink, 1) + weight
            out = out * gl.expand_dims(gl.convert_layout(shrink, gl.SliceLayout(1, VALUES)), 1)
            fence_async_shared()
            gl.thread_barrier()
            out = warpgroup_mma(weights, keys.index(buffer), out, is_async=True)
            async_copy.wait_group(0)
            fence_async_shared()
            gl.thread_barrier()
            dots = warpgroup_mma(queries, keys.index(1 - buffer).permute((1, 0)), zeros, use_acc=False, is_async=True)
            row, seen = _columns(
                first + 2 * BLOCK_N, picks, token, lo, base, count, first_key, num_keys, LOCAL, KIND, BLOCK_N, ROWS
            )
            here = _picks(first + BLOCK_N, count, of_token, LOCAL, KIND, BLOCK_N, KEYS)
            key_row, key_seen = _columns(
                first + BLOCK_N, here, token, lo, base, count, first_key, num_keys, LOCAL, KIND, BLOCK_N, KEYS
            )
            bias = _bias(key_row, key_seen, num_rows)
            out = warpgroup_mma_wait(num_outstanding=1, deps=(out,))
            # Both warp groups are done with these keys.
            gl.thread_barrier()
            if first + 2 * BLOCK_N < end:
                _copy_keys(keys.index(buffer), table_ptr, row, seen, num_rows, WIDTH, COPY)
                picks = _picks(first + 3 * BLOCK_N, count, of_token, LOCAL, KIND, BLOCK_N, ROWS)
            dots = warpgroup_mma_wait(num_outstanding=0, deps=(dots,))
            buffer = 1 - buffer
        weight, best, shrink = _weights(dots, bias, best, scale_log2)
        weights.store(weight.to(dtype))
        total = total * gl.expand_dims(shrink, 1) + weight
        out = out * gl.expand_dims(gl.convert_layout(shrink, gl.SliceLayout(1, VALUES)), 1)
        fence_async_shared()
        gl.thread_barrier()
        out = warpgroup_mma(weights, keys.index(buffer), out, is_async=True)
        if t + stride < tokens:
            _copy_heads(queries, q_ptr, following, first_head, num_heads, WIDTH, COPY)
            row, seen = _columns(
                next_begin, next_picks, following + first_query, next_lo, next_base, next_count, first_key, num_keys,
                LOCAL, KIND, BLOCK_N, ROWS,
            )  # fmt: skip
            _copy_keys(keys.index(1 - buffer), table_ptr, row, seen, num_rows, WIDTH, COPY)
        norm = gl.sum(total, 1) + gl.exp2(sink - best)
        out = warpgroup_mma_wait(num_outstanding=0, deps=(out,))
        out = out / gl.expand_dims(gl.convert_layout(norm, gl.SliceLayout(1, VALUES)), 1)
        gl.thread_barrier()
        keys.index(buffer).store(out.to(dtype))
        gl.thread_barrier()
        _store_heads(keys.index(buffer), out_ptr, t, first_head, num_heads, WIDTH, COPY)
        gl.store(lse_ptr + t.to(gl.int64) * num_heads + head, best + gl.log2(norm))
        # The next token's second block of keys is copied to where this output was staged.
        gl.thread_barrier()
        lo, base, count, begin = next_lo, next_base, next_count, next_begin
        buffer = 1 - buffer


@gluon.jit(do_not_specialize=["first_query", "first_key", "num_keys", "num_rows", "stride_picks", "first", "columns"])
def backward_queries(
    q_ptr, table_ptr, lse_ptr, out_ptr, dout_ptr, lo_ptr, base_ptr, count_ptr, picks_ptr,
    dq_ptr, delta_ptr, weight_ptr, slope_ptr,
    first_query, first_key, num_keys, num_rows, stride_picks, first, columns, num_heads, scale,
    WIDTH: gl.constexpr, LOCAL: gl.constexpr, KIND: gl.constexpr, BLOCK_N: gl.constexpr, BUFFERS: gl.constexpr,
):  # fmt: skip
    COPY: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [8, 1], [1, 0])
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, BLOCK_N // 2, 16])
    VALUES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, WIDTH // 2, 16])
    SHARED: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    NARROW: gl.constexpr = gl.NVMMASharedLayout(2 * BLOCK_N, 16, 2)
    ROWS: gl.constexpr = gl.SliceLayout(1, COPY)
    KEYS: gl.constexpr = gl.SliceLayout(0, SCORES)
    HEAD: gl.constexpr = gl.SliceLayout(1, SCORES)
    dtype: gl.constexpr = q_ptr.dtype.element_ty
    own = gl.program_id(0)
    t = own + first
    first_head = gl.program_id(1) * 64
    token = t + first_query
    lo = gl.load(lo_ptr + t).to(gl.int32)
    count = 0
    base = 0
    if KIND != 0:
        count = gl.load(count_ptr + t).to(gl.int32)
        base = gl.load(base_ptr + t).to(gl.int32)
    picks_ptr += t.to(gl.int64) * stride_picks
    queries = gl.allocate_shared_memory(dtype, [64, WIDTH], SHARED)
    douts = gl.allocate_shared_memory(dtype, [64, WIDTH], SHARED)
    keys = gl.allocate_shared_memory(dtype, [BUFFERS, BLOCK_N, WIDTH], SHARED)
    slopes = gl.allocate_shared_memory(dtype, [64, BLOCK_N], NARROW)
    begin = (lo - token + LOCAL - 1) // BLOCK_N * BLOCK_N
    end = LOCAL + count
    picks = _picks(begin, count, picks_ptr, LOCAL, KIND, BLOCK_N, ROWS)
    _copy_heads(queries, q_ptr, t, first_head, num_heads, WIDTH, COPY)
    _copy_heads(douts, dout_ptr, t, first_head, num_heads, WIDTH, COPY)
    row, seen = _columns(begin, picks, token, lo, base, count, first_key, num_keys, LOCAL, KIND, BLOCK_N, ROWS)
    _copy_keys(keys.index(0), table_ptr, row, seen, num_rows, WIDTH, COPY)
    picks = _picks(begin + BLOCK_N, count, picks_ptr, LOCAL, KIND, BLOCK_N, ROWS)
    # delta = sum of out * dout, while the copies are under way.
    of_rows = t.to(gl.int64) * num_heads + first_head
    delta = gl.zeros([64], gl.float32, layout=ROWS)
    for part in gl.static_range(0, WIDTH, 128):
        channel = part + gl.arange(0, 128, layout=gl.SliceLayout(0, COPY))
        at = of_rows * WIDTH + gl.expand_dims(gl.arange(0, 64, layout=ROWS) * WIDTH, 1) + gl.expand_dims(channel, 0)
        delta += gl.sum(gl.load(out_ptr + at).to(gl.float32) * gl.load(dout_ptr + at).to(gl.float32), 1)
    delta = gl.convert_layout(delta, HEAD)
    head = gl.arange(0, 64, layout=HEAD)
    lse = gl.load(lse_ptr + of_rows + head)
    dq = gl.zeros([64, WIDTH], gl.float32, layout=VALUES)
    total = gl.zeros([64, BLOCK_N], gl.float32, layout=SCORES)
    buffer = 0
    for column in range(begin, end, BLOCK_N):
        async_copy.wait_group(0)
        fence_async_shared()
        gl.thread_barrier()
        now = keys.index(buffer)
        zeros = gl.zeros([64, BLOCK_N], gl.float32, layout=SCORES)
        dots = warpgroup_mma(queries, now.permute((1, 0)), zeros, use_acc=False, is_async=True)
        dweight = warpgroup_mma(douts, now.permute((1, 0)), zeros, use_acc=False, is_async=True)
        if BUFFERS == 2:  # noqa: SIM102 - known when it is compiled, unlike the next
            if column + BLOCK_N < end:
                row, seen = _columns(
                    column + BLOCK_N, picks, token, lo, base, count, first_key, num_keys, LOCAL, KIND, BLOCK_N, ROWS
                )
                _copy_keys(keys.index(1 - buffer), table_ptr, row, seen, num_rows, WIDTH, COPY)
                picks = _picks(column + 2 * BLOCK_N, count, picks_ptr, LOCAL, KIND, BLOCK_N, ROWS)
        here = _picks(column, count, picks_ptr, LOCAL, KIND, BLOCK_N, KEYS)
        key_row, key_seen = _columns(
            column, here, token, lo, base, count, first_key, num_keys, LOCAL, KIND, BLOCK_N, KEYS
        )
        bias = _bias(key_row, key_seen, num_rows)
        scores = warpgroup_mma_wait(num_outstanding=1, deps=(dots,))
        scores = scores * (scale * 1.4426950408889634) + gl.expand_dims(bias, 0)
        weight = gl.exp2(scores - gl.expand_dims(lse, 1))
        dweight = warpgroup_mma_wait(num_outstanding=0, deps=(dweight,))
        total += weight * dweight
        slope = (weight * (dweight - gl.expand_dims(delta, 1)) * scale).to(dtype)
        slopes.store(slope)
        fence_async_shared()
        gl.thread_barrier()
        dq = warpgroup_mma(slopes, now, dq, is_async=True)
        place = own.to(gl.int64) * columns + column
        to = place * num_heads + first_head + gl.expand_dims(head, 1)
        to += gl.expand_dims(gl.arange(0, BLOCK_N, layout=KEYS) * num_heads, 0)
        gl.store(weight_ptr + to, weight.to(dtype))
        gl.store(slope_ptr + to, slope)
        dq = warpgroup_mma_wait(num_outstanding=0, deps=(dq,))
        if BUFFERS == 1:
            gl.thread_barrier()
            if column + BLOCK_N < end:
                row, seen = _columns(
                    column + BLOCK_N, picks, token, lo, base, count, first_key, num_keys, LOCAL, KIND, BLOCK_N, ROWS
                )
                _copy_keys(keys.index(0), table_ptr, row, seen, num_rows, WIDTH, COPY)
                picks = _picks(column + 2 * BLOCK_N, count, picks_ptr, LOCAL, KIND, BLOCK_N, ROWS)
        else:
            buffer = 1 - buffer
    # A query that sees nothing comes here with its copies under way: what needs shared memory waits for them.
    async_copy.wait_group(0)
    gl.thread_barrier()
    gl.store(delta_ptr + of_rows + head, gl.sum(total, 1))
    queries.store(dq.to(dtype))
    gl.thread_barrier()
    _store_heads(queries, dq_ptr, t, first_head, num_heads, WIDTH, COPY)
