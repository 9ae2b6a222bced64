"""The fast twin of `v4model.ops.ce.linear_cross_entropy`: logits are read once, and become their gradient in place."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from v4model.ops.fast.kernels import rowwise

_BLOCK = 4096


def linear_cross_entropy(hidden: Tensor, weight: Tensor, *, labels: Tensor, chunk_tokens: int) -> Tensor:
    """As the plain twin; a label outside the vocabulary gives NaN."""
    nll: Tensor = _LinearCrossEntropy.apply(hidden, weight, labels, chunk_tokens)  # type: ignore[no-untyped-call]
    return nll


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, chunk_tokens: int) -> Tensor:
        tokens = hidden.shape[0]
        nll = torch.empty(tokens, dtype=torch.float32, device=hidden.device)
        log_sum = torch.empty_like(nll)
        labels = labels.contiguous()
        for start in range(0, tokens, chunk_tokens):
            logits = hidden[start : start + chunk_tokens] @ weight.T
            rowwise.loss_forward[logits.shape[0],](
                logits, labels, log_sum, nll, start, weight.shape[0], BLOCK=_block(weight), num_warps=8
            )
        ctx.save_for_backward(hidden, weight, labels, log_sum)
        ctx.chunk_tokens = chunk_tokens
        return nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        hidden, weight, labels, log_sum = ctx.saved_tensors
        grad_hidden = torch.empty_like(hidden)
        grad_weight: Tensor | None = None
        for start in range(0, hidden.shape[0], ctx.chunk_tokens):
            part = hidden[start : start + ctx.chunk_tokens]
            logits = part @ weight.T
            block = _block(weight)
            rowwise.loss_backward[logits.shape[0], triton.cdiv(weight.shape[0], block)](
                logits, labels, log_sum, grads[0].contiguous(), start, weight.shape[0], BLOCK=block, num_warps=8
            )
            torch.mm(logits, weight, out=grad_hidden[start : start + part.shape[0]])
            grad_weight = _added(grad_weight, logits, part)
        if grad_weight is None:
            return grad_hidden, torch.zeros_like(weight), None, None
        return grad_hidden, grad_weight.to(weight.dtype), None, None


def _added(total: Tensor | None, grad_logits: Tensor, hidden: Tensor) -> Tensor:
    """total + grad_logits.T @ hidden, [V, D] in float32, in the product's own sum where the device can."""
    if not hidden.is_cuda or hidden.dtype == torch.float32:
        part = (grad_logits.T @ hidden).float()
        return part if total is None else total.add_(part)
    if total is None:
        return torch.mm(grad_logits.T, hidden, out_dtype=torch.float32)
    return torch.addmm(total, grad_logits.T, hidden, out_dtype=torch.float32, out=total)


def _block(weight: Tensor) -> int:
    return min(int(triton.next_power_of_2(weight.shape[0])), _BLOCK)
