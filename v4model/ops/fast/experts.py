"""The fast twin of `v4model.layers.experts.chosen_experts`: one grouped product for all, no count on the host."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from v4model.ops.fast.kernels import experts as kernels
from v4model.ops.fast.swiglu import clamped_swiglu_pair

_BLOCK = 2048


def chosen_experts(
    x: Tensor, experts: Tensor, weights: Tensor, *, gate_up_proj: Tensor, down_proj: Tensor, limit: float
) -> Tensor:
    """As the plain twin."""
    choices = experts.shape[1]
    expert, order = torch.sort(experts.flatten(), stable=True)
    # Where each choice stands among the rows in order of their expert.
    place = torch.empty_like(order)
    place[order] = torch.arange(order.shape[0], device=order.device)
    ends = torch.arange(gate_up_proj.shape[0], device=expert.device, dtype=expert.dtype)
    offsets = torch.searchsorted(expert, ends, right=True).to(torch.int32)
    rows = _Dispatch.apply(x, order // choices, place, choices)  # type: ignore[no-untyped-call]
    rows = grouped_product(rows, gate_up_proj, offsets=offsets)
    rows = grouped_product(clamped_swiglu_pair(rows, limit=limit), down_proj, offsets=offsets)
    out: Tensor = _Combine.apply(rows, weights, place)  # type: ignore[no-untyped-call]
    return out


def grouped_product(rows: Tensor, weight: Tensor, *, offsets: Tensor) -> Tensor:
    """rows [N, in] in order of their group, weight [G, out, in], offsets [G] int32: where groups end -> [N, out]."""
    if rows.is_cuda and rows.dtype == torch.bfloat16:
        return torch._grouped_mm(rows, weight.transpose(1, 2), offs=offsets)
    # Elsewhere torch has no such product; this one needs the counts on the host.
    ends = offsets.tolist()
    parts = rows.split([end - begin for begin, end in zip([0, *ends], ends, strict=False)])
    return torch.cat([part @ matrix.T for part, matrix in zip(parts, weight.unbind(), strict=True)])


class _Dispatch(torch.autograd.Function):
    """rows[i] = x[token[i]]; every token has `choices` rows, so that its gradient is a sum of so many."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor, place: Tensor, choices: int) -> Tensor:
        ctx.save_for_backward(place)
        ctx.choices = choices
        return x[token]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (place,) = ctx.saved_tensors
        return _combined(grads[0].contiguous(), place, None, choices=ctx.choices), None, None, None


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weights: Tensor, place: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weights, place)
        return _combined(rows.contiguous(), place, weights.contiguous(), choices=weights.shape[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        rows, weights, place = ctx.saved_tensors
        drows, dweights = torch.empty_like(rows), torch.empty(weights.shape, dtype=torch.float32, device=rows.device)
        tokens, width = grads[0].shape
        if tokens:
            kernels.combine_backward[tokens,](
                rows.contiguous(), place, weights.contiguous(), grads[0].contiguous(), drows, dweights, width,
                CHOICES=weights.shape[1], BLOCK=min(triton.next_power_of_2(width), _BLOCK),
            )  # fmt: skip
        return drows, dweights.to(weights.dtype), None


def _combined(rows: Tensor, place: Tensor, weights: Tensor | None, *, choices: int) -> Tensor:
    tokens, width = place.shape[0] // choices, rows.shape[1]
    out = torch.empty(tokens, width, dtype=rows.dtype, device=rows.device)
    block = min(triton.next_power_of_2(width), _BLOCK)
    if tokens:
        kernels.combine[tokens, triton.cdiv(width, block)](
            rows, place, rows if weights is None else weights, out, width,
            CHOICES=choices, WEIGHTED=weights is not None, BLOCK=block,
        )  # fmt: skip
    return out
