"""Kernels of a pass over rows: norm, rotation, SwiGLU, the rows of cross entropy."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_rows"])
def norm_forward(
    x_ptr, weight_ptr, y_ptr, num_rows, eps,
    WIDTH: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr, WEIGHTED: tl.constexpr,
):  # fmt: skip
    """y = x / rms(x) [* weight], rows [num_rows, WIDTH]."""
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    channel = tl.arange(0, BLOCK_D)
    at = row.to(tl.int64)[:, None] * WIDTH + channel[None, :]
    mask = (row < num_rows)[:, None] & (channel < WIDTH)[None, :]
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, 1) / WIDTH + eps)[:, None]
    if WEIGHTED:
        y *= tl.load(weight_ptr + channel, mask=channel < WIDTH, other=0.0)[None, :]
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["num_rows"])
def norm_backward(
    x_ptr, weight_ptr, dy_ptr, dx_ptr, part_ptr, num_rows, eps,
    WIDTH: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr, WEIGHTED: tl.constexpr,
):  # fmt: skip
    """dx, and each program's part [programs, WIDTH] of the weight's gradient."""
    channel = tl.arange(0, BLOCK_D)
    dweight = tl.zeros([BLOCK_D], tl.float32)
    if WEIGHTED:
        weight = tl.load(weight_ptr + channel, mask=channel < WIDTH, other=0.0)
    for first in range(tl.program_id(0) * BLOCK_R, num_rows, tl.num_programs(0) * BLOCK_R):
        row = first + tl.arange(0, BLOCK_R)
        at = row.to(tl.int64)[:, None] * WIDTH + channel[None, :]
        mask = (row < num_rows)[:, None] & (channel < WIDTH)[None, :]
        x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + at, mask=mask, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(x * x, 1) / WIDTH + eps)[:, None]
        x *= scale
        if WEIGHTED:
            dweight += tl.sum(dy * x, 0)
            dy *= weight[None, :]
        dx = scale * (dy - x * (tl.sum(dy * x, 1) / WIDTH)[:, None])
        tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=mask)
    if WEIGHTED:
        tl.store(part_ptr + tl.program_id(0) * WIDTH + channel, dweight, mask=channel < WIDTH)


@triton.jit(do_not_specialize=["num_rows"])
def rotate(
    x_ptr, cos_ptr, sin_ptr, out_ptr, num_rows, num_heads,
    WIDTH: tl.constexpr, ROTARY: tl.constexpr, INVERSE: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Pairs of the last ROTARY channels turned by their row's angles; the angles [num_rows / num_heads, ROTARY / 2]."""
    row = (tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)).to(tl.int64)
    channel = tl.arange(0, BLOCK_D)
    at = row[:, None] * WIDTH + channel[None, :]
    mask = (row < num_rows)[:, None] & (channel < WIDTH)[None, :]
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    turned = channel - (WIDTH - ROTARY)
    rotary = mask & (turned >= 0)[None, :]
    partner = tl.load(x_ptr + row[:, None] * WIDTH + (WIDTH - ROTARY) + (turned ^ 1)[None, :], mask=rotary, other=0.0)
    angle = (row // num_heads)[:, None] * (ROTARY // 2) + (turned // 2)[None, :]
    cos = tl.load(cos_ptr + angle, mask=rotary, other=1.0)
    sin = tl.load(sin_ptr + angle, mask=rotary, other=0.0)
    # (a, b) becomes (a cos - b sin, a sin + b cos).
    sign = tl.where(turned % 2 == 0, -1.0, 1.0)
    if INVERSE:
        sign = -sign
    y = x.to(tl.float32) * cos + partner.to(tl.float32) * sin * sign[None, :]
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _silu(gate, limit):
    clamped = tl.minimum(gate, limit)
    sigmoid = 1.0 / (1.0 + tl.exp(-clamped))
    return clamped, sigmoid


@triton.jit(do_not_specialize=["num_rows"])
def swiglu_forward(
    gate_ptr, up_ptr, out_ptr, num_rows, width, gate_stride, up_stride, limit,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """out [num_rows, width] = SiLU(min(gate, limit)) * clamp(up, -limit, limit)."""
    row = (tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)).to(tl.int64)[:, None]
    channel = (tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C))[None, :]
    mask = (row < num_rows) & (channel < width)
    gate = tl.load(gate_ptr + row * gate_stride + channel, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + channel, mask=mask, other=0.0).to(tl.float32)
    clamped, sigmoid = _silu(gate, limit)
    out = clamped * sigmoid * tl.minimum(tl.maximum(up, -limit), limit)
    tl.store(out_ptr + row * width + channel, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["num_rows"])
def swiglu_backward(
    gate_ptr, up_ptr, dout_ptr, dgate_ptr, dup_ptr, num_rows, width, gate_stride, up_stride, dgate_stride, dup_stride,
    limit, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Gradients of gate and up; 0 beyond the limits."""
    row = (tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)).to(tl.int64)[:, None]
    channel = (tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C))[None, :]
    mask = (row < num_rows) & (channel < width)
    gate = tl.load(gate_ptr + row * gate_stride + channel, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + channel, mask=mask, other=0.0).to(tl.float32)
    dout = tl.load(dout_ptr + row * width + channel, mask=mask, other=0.0).to(tl.float32)
    clamped, sigmoid = _silu(gate, limit)
    dgate = dout * tl.minimum(tl.maximum(up, -limit), limit) * sigmoid * (1.0 + clamped * (1.0 - sigmoid))
    dup = dout * clamped * sigmoid
    dgate = tl.where(gate <= limit, dgate, 0.0)
    dup = tl.where((up >= -limit) & (up <= limit), dup, 0.0)
    tl.store(dgate_ptr + row * dgate_stride + channel, dgate.to(dgate_ptr.dtype.element_ty), mask=mask)
    tl.store(dup_ptr + row * dup_stride + channel, dup.to(dup_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["first"])
def loss_forward(logits_ptr, label_ptr, log_sum_ptr, nll_ptr, first, width, BLOCK: tl.constexpr):
    """log of the sum of a row's exponentials, and that less the label's logit (0 for label -1)."""
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * width
    best = tl.full([], float("-inf"), tl.float32)
    total = tl.zeros([], tl.float32)
    for begin in range(0, width, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        logit = tl.load(logits_ptr + column, mask=column < width, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(best, tl.max(logit))
        total = total * tl.exp(best - higher) + tl.sum(tl.exp(logit - higher))
        best = higher
    log_sum = best + tl.log(total)
    label = tl.load(label_ptr + first + row)
    of_label = tl.load(logits_ptr + label, mask=(label >= 0) & (label < width), other=float("nan")).to(tl.float32)
    tl.store(log_sum_ptr + first + row, log_sum)
    tl.store(nll_ptr + first + row, tl.where(label >= 0, log_sum - of_label, 0.0))


@triton.jit(do_not_specialize=["first"])
def loss_backward(logits_ptr, label_ptr, log_sum_ptr, grad_ptr, first, width, BLOCK: tl.constexpr):
    """Turns a row of logits into its gradient, in place."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = logits_ptr + row * width + column
    label = tl.load(label_ptr + first + row)
    grad = tl.where(label >= 0, tl.load(grad_ptr + first + row).to(tl.float32), 0.0)
    logit = tl.load(at, mask=column < width, other=0.0).to(tl.float32)
    slope = tl.exp(logit - tl.load(log_sum_ptr + first + row)) - tl.where(column == label, 1.0, 0.0)
    tl.store(at, (slope * grad).to(logits_ptr.dtype.element_ty), mask=column < width)
