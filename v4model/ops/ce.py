"""Linear cross entropy in chunks: the logits of all tokens never exist at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from v4model.ops.precision import wide, wide_dtype
from v4model.ops.twins import has_fast_twin


@has_fast_twin("ce")
def linear_cross_entropy(hidden: Tensor, weight: Tensor, *, labels: Tensor, chunk_tokens: int) -> Tensor:
    """-log softmax(hidden @ weight.T)[label] of each token, equal to the plain form in value and gradient.

    Args:
        hidden: [T, D]; weight: [V, D]; labels: [T] int64, -1 where there is none.
        chunk_tokens: rows of logits that exist at once.

    Returns:
        [T] in float32 or better, 0 where there is no label.
    """
    nll: Tensor = _LinearCrossEntropy.apply(hidden, weight, labels, chunk_tokens)  # type: ignore[no-untyped-call]
    return nll


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, chunk_tokens: int) -> Tensor:
        log_sums, nlls = [], []
        for start in range(0, hidden.shape[0], chunk_tokens):
            logits = wide(hidden[start : start + chunk_tokens] @ weight.T)
            label = labels[start : start + chunk_tokens, None]
            log_sum = logits.logsumexp(1)
            of_label = logits.gather(1, label.clamp_min(0))[:, 0]
            log_sums.append(log_sum)
            nlls.append(torch.where(label[:, 0] >= 0, log_sum - of_label, 0))
        ctx.save_for_backward(hidden, weight, labels, torch.cat(log_sums))
        ctx.chunk_tokens = chunk_tokens
        return torch.cat(nlls)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        hidden, weight, labels, log_sum = ctx.saved_tensors
        grad_nll = torch.where(labels >= 0, grads[0], 0)
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight, dtype=wide_dtype(weight.dtype))
        for start in range(0, hidden.shape[0], ctx.chunk_tokens):
            part = slice(start, start + ctx.chunk_tokens)
            grad_logits = torch.exp(wide(hidden[part] @ weight.T) - log_sum[part, None])
            grad_logits.scatter_add_(1, labels[part, None].clamp_min(0), -torch.ones_like(log_sum[part, None]))
            grad_logits *= grad_nll[part, None]
            grad_logits = grad_logits.to(hidden.dtype)
            grad_hidden[part] = grad_logits @ weight
            grad_weight += grad_logits.T @ hidden[part]
        return grad_hidden, grad_weight.to(weight.dtype), None, None
