"""Kernels of mHC: streams collapsed, mixed and expanded in one pass each; Sinkhorn without an intermediate tensor."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def collapse_forward(streams_ptr, weight_ptr, out_ptr, width, STREAMS: tl.constexpr, BLOCK: tl.constexpr):
    """out [T, width] = sum over k of weight[k] * streams[k]."""
    t = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for k in tl.static_range(STREAMS):
        x = tl.load(streams_ptr + (t * STREAMS + k) * width + channel, mask=channel < width, other=0.0).to(tl.float32)
        total += tl.load(weight_ptr + t * STREAMS + k).to(tl.float32) * x
    tl.store(out_ptr + t * width + channel, total.to(out_ptr.dtype.element_ty), mask=channel < width)


@triton.jit
def collapse_backward(
    streams_ptr, weight_ptr, dout_ptr, dstreams_ptr, dweight_ptr, width, STREAMS: tl.constexpr, BLOCK: tl.constexpr
):
    """dstreams[k] = weight[k] * dout, dweight[k] = streams[k] . dout."""
    t = tl.program_id(0).to(tl.int64)
    for k in tl.static_range(STREAMS):
        weight = tl.load(weight_ptr + t * STREAMS + k).to(tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
        for first in range(0, width, BLOCK):
            channel = first + tl.arange(0, BLOCK)
            mask = channel < width
            dout = tl.load(dout_ptr + t * width + channel, mask=mask, other=0.0).to(tl.float32)
            at = (t * STREAMS + k) * width + channel
            total += tl.load(streams_ptr + at, mask=mask, other=0.0).to(tl.float32) * dout
            tl.store(dstreams_ptr + at, (weight * dout).to(dstreams_ptr.dtype.element_ty), mask=mask)
        tl.store(dweight_ptr + t * STREAMS + k, tl.sum(total))


@triton.jit
def expand_forward(
    streams_ptr, out_ptr, post_ptr, comb_ptr, mixed_ptr, width, STREAMS: tl.constexpr, BLOCK: tl.constexpr
):
    """mixed[k] = post[k] * out + sum over j of comb[j, k] * streams[j]."""
    t = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = channel < width
    out = tl.load(out_ptr + t * width + channel, mask=mask, other=0.0).to(tl.float32)
    for k in tl.static_range(STREAMS):
        mixed = tl.load(post_ptr + t * STREAMS + k).to(tl.float32) * out
        for j in tl.static_range(STREAMS):
            # The same loads for every k: the compiler keeps them.
            x = tl.load(streams_ptr + (t * STREAMS + j) * width + channel, mask=mask, other=0.0).to(tl.float32)
            mixed += tl.load(comb_ptr + (t * STREAMS + j) * STREAMS + k).to(tl.float32) * x
        at = (t * STREAMS + k) * width + channel
        tl.store(mixed_ptr + at, mixed.to(mixed_ptr.dtype.element_ty), mask=mask)


@triton.jit
def expand_backward(
    streams_ptr, out_ptr, post_ptr, comb_ptr, dmixed_ptr, dstreams_ptr, dout_ptr, dpost_ptr, dcomb_ptr, width,
    STREAMS: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """All four gradients of `expand_forward`, of one token."""
    t = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, PADDED)
    dcomb = tl.zeros([PADDED, PADDED], tl.float32)
    dpost = tl.zeros([PADDED], tl.float32)
    for first in range(0, width, BLOCK):
        channel = first + tl.arange(0, BLOCK)
        mask = channel < width
        at = (t * STREAMS + j)[:, None] * width + channel[None, :]
        fits = (j < STREAMS)[:, None] & mask[None, :]
        x = tl.load(streams_ptr + at, mask=fits, other=0.0).to(tl.float32)
        out = tl.load(out_ptr + t * width + channel, mask=mask, other=0.0).to(tl.float32)
        dx = tl.zeros([PADDED, BLOCK], tl.float32)
        dout = tl.zeros([BLOCK], tl.float32)
        for k in tl.static_range(STREAMS):
            grad = tl.load(dmixed_ptr + (t * STREAMS + k) * width + channel, mask=mask, other=0.0).to(tl.float32)
            comb = tl.load(comb_ptr + (t * STREAMS + j) * STREAMS + k, mask=j < STREAMS, other=0.0).to(tl.float32)
            dx += comb[:, None] * grad[None, :]
            dout += tl.load(post_ptr + t * STREAMS + k).to(tl.float32) * grad
            dcomb += tl.where((j == k)[None, :], tl.sum(x * grad[None, :], 1)[:, None], 0.0)
            dpost += tl.where(j == k, tl.sum(out * grad), 0.0)
        tl.store(dstreams_ptr + at, dx.to(dstreams_ptr.dtype.element_ty), mask=fits)
        tl.store(dout_ptr + t * width + channel, dout.to(dout_ptr.dtype.element_ty), mask=mask)
    tl.store(dpost_ptr + t * STREAMS + j, dpost, mask=j < STREAMS)
    at = (t * STREAMS + j)[:, None] * STREAMS + j[None, :]
    tl.store(dcomb_ptr + at, dcomb, mask=(j < STREAMS)[:, None] & (j < STREAMS)[None, :])


@triton.jit(do_not_specialize=["tokens"])
def normed_forward(
    x_ptr, fn_ptr, y_ptr, scale_ptr, tokens, width, rows, eps,
    PARTS: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y [T, rows] = fn @ (x / rms(x)) and scale [T] = 1 / rms(x), x read once."""
    t = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    r = tl.arange(0, BLOCK_R)
    y = tl.zeros([BLOCK_T, BLOCK_R], tl.float32)
    squares = tl.zeros([BLOCK_T], tl.float32)
    for first in tl.range(0, width, BLOCK, num_stages=3):
        channel = first + tl.arange(0, BLOCK)
        at = t.to(tl.int64)[:, None] * width + channel[None, :]
        x = tl.load(x_ptr + at, mask=(t < tokens)[:, None] & (channel < width)[None, :], other=0.0)
        wide = x.to(tl.float32)
        squares += tl.sum(wide * wide, 1)
        at = r[:, None] * width + channel[None, :]
        mask = (r < rows)[:, None] & (channel < width)[None, :]
        for part in tl.static_range(PARTS):
            fn = tl.load(fn_ptr + part * rows * width + at, mask=mask, other=0.0)
            dots = tl.dot(x.to(fn.dtype), tl.trans(fn), input_precision="ieee")
            # Added here and not in the matrix unit, whose long sums lose bits; the choice keeps the compiler from it.
            y += tl.where((t < tokens)[:, None], dots, 0.0)
    scale = tl.rsqrt(squares / width + eps)
    mask = (t < tokens)[:, None] & (r < rows)[None, :]
    tl.store(y_ptr + t[:, None] * rows + r[None, :], y * scale[:, None], mask=mask)
    tl.store(scale_ptr + t, scale, mask=t < tokens)


@triton.jit(do_not_specialize=["tokens"])
def normed_backward_x(
    x_ptr, fn_ptr, y_ptr, scale_ptr, dy_ptr, dx_ptr, tokens, width, rows,
    PARTS: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx = scale * (dy @ fn) - x * scale^2 * mean(dy * y)."""
    t = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    r = tl.arange(0, BLOCK_R)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (t < tokens)[:, None] & (r < rows)[None, :]
    dy = tl.load(dy_ptr + t[:, None] * rows + r[None, :], mask=mask, other=0.0)
    y = tl.load(y_ptr + t[:, None] * rows + r[None, :], mask=mask, other=0.0)
    scale = tl.load(scale_ptr + t, mask=t < tokens, other=0.0)
    at = r[:, None] * width + channel[None, :]
    there = (r < rows)[:, None] & (channel < width)[None, :]
    fn = tl.load(fn_ptr + at, mask=there, other=0.0)
    slope = dy * scale[:, None]
    dx = tl.dot(slope.to(fn.dtype), fn, input_precision="ieee")
    if PARTS > 1:
        # Two parts of each factor: what is left out lies far below the rounding of dx.
        low = slope - slope.to(fn.dtype).to(tl.float32)
        dx = tl.dot(low.to(fn.dtype), fn, dx)
        fn = tl.load(fn_ptr + rows * width + at, mask=there, other=0.0)
        dx = tl.dot(slope.to(fn.dtype), fn, dx)
    at = t.to(tl.int64)[:, None] * width + channel[None, :]
    fits = (t < tokens)[:, None] & (channel < width)[None, :]
    x = tl.load(x_ptr + at, mask=fits, other=0.0).to(tl.float32)
    dx -= x * (scale * scale * tl.sum(dy * y, 1) / width)[:, None]
    tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=fits)


@triton.jit(do_not_specialize=["tokens"])
def normed_backward_fn(
    x_ptr, scale_ptr, dy_ptr, part_ptr, tokens, width, rows,
    PARTS: tl.constexpr, SPLIT: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """part [splits, rows, width]: each run of SPLIT tokens' share of fn's gradient, sum of scale * dy x."""
    r = tl.arange(0, BLOCK_R)
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK_R, BLOCK], tl.float32)
    begin = tl.program_id(1) * SPLIT
    for first in tl.range(begin, tl.minimum(begin + SPLIT, tokens), BLOCK_T, num_stages=3):
        t = first + tl.arange(0, BLOCK_T)
        mask = (t < tokens)[:, None] & (r < rows)[None, :]
        dy = tl.load(dy_ptr + t[:, None] * rows + r[None, :], mask=mask, other=0.0)
        dy *= tl.load(scale_ptr + t, mask=t < tokens, other=0.0)[:, None]
        at = t.to(tl.int64)[:, None] * width + channel[None, :]
        x = tl.load(x_ptr + at, mask=(t < tokens)[:, None] & (channel < width)[None, :], other=0.0)
        if PARTS == 1:
            total = tl.dot(tl.trans(dy), x.to(tl.float32), total, input_precision="ieee")
        else:
            for _ in tl.static_range(PARTS):
                part = dy.to(x.dtype)
                total = tl.dot(tl.trans(part), x, total)
                dy -= part.to(tl.float32)
    at = (tl.program_id(1) * rows + r)[:, None] * width + channel[None, :]
    tl.store(part_ptr + at, total, mask=(r < rows)[:, None] & (channel < width)[None, :])


@triton.jit
def _step(x, step, eps):
    """Step 0, 2, 4, ... divide columns by their sum, the others rows."""
    columns = tl.sum(x, 1)[:, None, :]
    rows = tl.sum(x, 2)[:, :, None]
    return x / (tl.where(step % 2 == 0, columns, rows) + eps)


@triton.jit
def _square(ptr, t, tokens, STREAMS: tl.constexpr, PADDED: tl.constexpr):
    """Pointers and mask of [BLOCK_T, PADDED, PADDED]."""
    k = tl.arange(0, PADDED)
    at = (t[:, None, None] * STREAMS + k[None, :, None]) * STREAMS + k[None, None, :]
    mask = (t < tokens)[:, None, None] & (k < STREAMS)[None, :, None] & (k < STREAMS)[None, None, :]
    return ptr + at, mask


@triton.jit(do_not_specialize=["tokens"])
def sinkhorn_forward(
    x_ptr, y_ptr, tokens, steps, eps, STREAMS: tl.constexpr, PADDED: tl.constexpr, BLOCK_T: tl.constexpr
):
    """y [T, STREAMS, STREAMS] after `steps` normalisations, columns first."""
    t = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    at, mask = _square(x_ptr, t, tokens, STREAMS, PADDED)
    x = tl.load(at, mask=mask, other=0.0)
    for step in range(steps):
        x = _step(x, step, eps)
    at, mask = _square(y_ptr, t, tokens, STREAMS, PADDED)
    tl.store(at, x, mask=mask)


@triton.jit(do_not_specialize=["tokens"])
def sinkhorn_backward(
    x_ptr, dy_ptr, dx_ptr, kept_ptr, tokens, steps, eps,
    STREAMS: tl.constexpr, PADDED: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """dx; the input of each step is computed again and put down in kept [steps, T, STREAMS, STREAMS]."""
    t = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    at, mask = _square(x_ptr, t, tokens, STREAMS, PADDED)
    x = tl.load(at, mask=mask, other=0.0)
    kept, mask = _square(kept_ptr, t, tokens, STREAMS, PADDED)
    size = tl.cast(tokens, tl.int64) * STREAMS * STREAMS
    for step in range(steps):
        # Threads read what they wrote themselves: the layout is the same.
        tl.store(kept + step * size, x, mask=mask)
        x = _step(x, step, eps)
    at, mask = _square(dy_ptr, t, tokens, STREAMS, PADDED)
    grad = tl.load(at, mask=mask, other=0.0)
    for back in range(steps):
        last = steps - 1 - back
        x = tl.load(kept + last * size, mask=mask, other=0.0)
        columns = tl.sum(x, 1)[:, None, :]
        rows = tl.sum(x, 2)[:, :, None]
        total = tl.where(last % 2 == 0, columns, rows) + eps
        product = grad * x / total
        along = tl.where(last % 2 == 0, tl.sum(product, 1)[:, None, :], tl.sum(product, 2)[:, :, None])
        grad = (grad - along) / total
    at, mask = _square(dx_ptr, t, tokens, STREAMS, PADDED)
    tl.store(at, grad, mask=mask)
