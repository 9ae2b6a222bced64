"""Rows of choices and rows of tokens: each way in a fixed order, without atomics."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def combine(
    rows_ptr, place_ptr, weight_ptr, out_ptr, width, CHOICES: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr
):
    """out [T, width]: sum over a token's choices of [weight *] rows[place[t, choice]]."""
    t = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = channel < width
    total = tl.zeros([BLOCK], tl.float32)
    for choice in tl.static_range(CHOICES):
        place = tl.load(place_ptr + t * CHOICES + choice)
        x = tl.load(rows_ptr + place * width + channel, mask=mask, other=0.0).to(tl.float32)
        if WEIGHTED:
            x *= tl.load(weight_ptr + t * CHOICES + choice).to(tl.float32)
        total += x
    tl.store(out_ptr + t * width + channel, total.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def combine_backward(
    rows_ptr, place_ptr, weight_ptr, dout_ptr, drows_ptr, dweight_ptr, width, CHOICES: tl.constexpr, BLOCK: tl.constexpr
):
    """drows[place] = weight * dout of the token, dweight = rows[place] . dout."""
    t = tl.program_id(0).to(tl.int64)
    for choice in tl.static_range(CHOICES):
        place = tl.load(place_ptr + t * CHOICES + choice)
        weight = tl.load(weight_ptr + t * CHOICES + choice).to(tl.float32)
        product = tl.zeros([BLOCK], tl.float32)
        for first in range(0, width, BLOCK):
            channel = first + tl.arange(0, BLOCK)
            mask = channel < width
            dout = tl.load(dout_ptr + t * width + channel, mask=mask, other=0.0).to(tl.float32)
            product += dout * tl.load(rows_ptr + place * width + channel, mask=mask, other=0.0).to(tl.float32)
            to = drows_ptr + place * width + channel
            tl.store(to, (weight * dout).to(drows_ptr.dtype.element_ty), mask=mask)
        tl.store(dweight_ptr + t * CHOICES + choice, tl.sum(product))
