"""Expert affinities, weights and the per-sample balance loss (section 2.1)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def affinities(logits: Tensor) -> Tensor:
    """sqrt(softplus(logits)), [T, E]."""
    # softplus underflows to 0 near -104 in float32, where the square root's slope is infinite.
    return F.softplus(logits).clamp_min(torch.finfo(logits.dtype).tiny).sqrt()


def choose_experts(affinity: Tensor, *, bias: Tensor, top_k: int) -> Tensor:
    """[T, k] experts of the largest affinity + selection-only bias; ties go to the lower expert id."""
    return torch.sort(affinity.detach() + bias, dim=1, descending=True, stable=True).indices[:, :top_k]


def expert_weights(affinity: Tensor, experts: Tensor, *, scaling: float) -> Tensor:
    """[T, k] affinities of the chosen, normalised over them and scaled; the selection bias never enters."""
    chosen = affinity.gather(1, experts)
    return chosen / (chosen.sum(1, keepdim=True) + 1e-20) * scaling


def count_selections(experts: Tensor, *, num_experts: int, sample: Tensor, num_samples: int) -> Tensor:
    """[S, E] selections of each expert by each sample's tokens; tokens of sample -1 (padding) are left out."""
    ones = F.one_hot(experts, num_experts).sum(1)
    return _sum_by_sample(ones, sample=sample, num_samples=num_samples)


def sum_shares(affinity: Tensor, *, sample: Tensor, num_samples: int) -> Tensor:
    """[S, E] sums over each sample's tokens of affinity / its sum over all experts; sample -1 is left out."""
    shares = affinity / affinity.sum(1, keepdim=True)
    return _sum_by_sample(shares, sample=sample, num_samples=num_samples)


def balance_loss(shares: Tensor, counts: Tensor, *, top_k: int) -> Tensor:
    """Sum over samples of len_s * L_s, with L_s = E / (k len_s) * sum_e count_e * mean share_e.

    Args:
        shares, counts: [S, E] of whole samples: on ranks, both are added up before this product.

    Returns:
        scalar, differentiable through the shares only.
    """
    lengths = counts.sum(1, keepdim=True) // top_k
    return (counts * shares / lengths.clamp_min(1)).sum() * (counts.shape[1] / top_k)


def _sum_by_sample(x: Tensor, *, sample: Tensor, num_samples: int) -> Tensor:
    # The last row takes what belongs to no sample and is dropped.
    sums = x.new_zeros(num_samples + 1, x.shape[1])
    return sums.index_add(0, torch.where(sample >= 0, sample, num_samples), x)[:-1]
