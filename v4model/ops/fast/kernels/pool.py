"""Gated pooling of token windows, read straight from the pack; the slots of a window are the rows of one block."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _slots(
    kv_ptr, gate_ptr, bias_ptr, first_ptr, index_ptr, window, num_tokens, channel,
    WIDTH: tl.constexpr, RATIO: tl.constexpr, SLOTS: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Of one window [BLOCK_S, BLOCK_C]: weights, values, where in kv these stand, what is read, what counts.

    SLOTS is RATIO, or twice that: then the first half are tokens of the window before, in the first half of the
    channels. Weights are NaN (loud) in a window with a token behind the last; nothing is read there.
    """
    slot = tl.arange(0, BLOCK_S)
    token = tl.load(first_ptr + window) + slot - (SLOTS - RATIO)
    # In the sample: the first window has none before it.
    position = tl.load(index_ptr + window) * RATIO + slot - (SLOTS - RATIO)
    counted = (slot < SLOTS) & (position >= 0) & ((slot >= SLOTS - RATIO) | (token >= 0))
    column = (slot // RATIO)[:, None] * WIDTH + channel[None, :]
    fits = (channel < WIDTH)[None, :]
    at = token[:, None] * (SLOTS // RATIO * WIDTH) + column
    of_bias = (slot % RATIO)[:, None] * (SLOTS // RATIO * WIDTH) + column
    read = (counted & (token >= 0) & (token < num_tokens))[:, None] & fits
    logit = tl.load(gate_ptr + at, mask=read, other=0.0).to(tl.float32)
    logit += tl.load(bias_ptr + of_bias, mask=counted[:, None] & fits, other=0.0).to(tl.float32)
    beyond = tl.where(token >= num_tokens, float("nan"), 0.0)
    logit += tl.where(counted, beyond, float("-inf"))[:, None]
    weight = tl.exp(logit - tl.max(logit, 0)[None, :])
    weight = weight / tl.sum(weight, 0)[None, :]
    value = tl.load(kv_ptr + at, mask=read, other=0.0).to(tl.float32)
    return weight, value, at, read, counted[:, None] & fits


@triton.jit(do_not_specialize=["num_tokens"])
def forward(
    kv_ptr, gate_ptr, bias_ptr, first_ptr, index_ptr, out_ptr, num_tokens,
    WIDTH: tl.constexpr, RATIO: tl.constexpr, SLOTS: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """out [W, WIDTH]: softmax over each window's slots of (gate + bias), weighted sum of kv."""
    window = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    weight, value, _at, _read, _counted = _slots(
        kv_ptr, gate_ptr, bias_ptr, first_ptr, index_ptr, window, num_tokens, channel, WIDTH, RATIO, SLOTS, BLOCK_S
    )
    out = tl.sum(weight * value, 0)
    tl.store(out_ptr + window * WIDTH + channel, out.to(out_ptr.dtype.element_ty), mask=channel < WIDTH)


@triton.jit(do_not_specialize=["num_tokens", "num_windows", "run"])
def backward(
    kv_ptr, gate_ptr, bias_ptr, first_ptr, index_ptr, dout_ptr, dkv_ptr, dgate_ptr, part_ptr,
    num_tokens, num_windows, run,
    WIDTH: tl.constexpr, RATIO: tl.constexpr, SLOTS: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """dkv and dgate of every slot, each written by the one window that reads it; the weights are made again.

    part [programs, RATIO, SLOTS / RATIO * WIDTH] float32: the bias's gradient, of `run` windows a program.
    """
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    begin = tl.program_id(0) * run
    dbias = tl.zeros([BLOCK_S, BLOCK_C], tl.float32)
    for each in range(begin, tl.minimum(begin + run, num_windows)):
        window = tl.cast(each, tl.int64)
        weight, value, at, read, counted = _slots(
            kv_ptr, gate_ptr, bias_ptr, first_ptr, index_ptr, window, num_tokens, channel, WIDTH, RATIO, SLOTS, BLOCK_S
        )
        dout = tl.load(dout_ptr + window * WIDTH + channel, mask=channel < WIDTH, other=0.0).to(tl.float32)
        out = tl.sum(weight * value, 0)
        dlogit = tl.where(counted, weight * (value - out[None, :]) * dout[None, :], 0.0)
        dbias += dlogit
        tl.store(dkv_ptr + at, (weight * dout[None, :]).to(dkv_ptr.dtype.element_ty), mask=read)
        tl.store(dgate_ptr + at, dlogit.to(dgate_ptr.dtype.element_ty), mask=read)
    slot = tl.arange(0, BLOCK_S)
    stride = SLOTS // RATIO * WIDTH
    to = (slot % RATIO)[:, None] * stride + (slot // RATIO)[:, None] * WIDTH + channel[None, :]
    part_ptr += tl.program_id(0).to(tl.int64) * RATIO * stride
    tl.store(part_ptr + to, dbias, mask=(slot < SLOTS)[:, None] & (channel < WIDTH)[None, :])
