"""The indexer's KL term is the log of the scores' sum, less their mean under p, less p's entropy."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.rewrites.registry import Ran, Rewrite, rewritten
from v4model.layers.attention import base

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _divergence(scores: Tensor, mass: Tensor, *, picks: Tensor) -> Tensor:
    picked = picks >= 0
    some, total = picked.any(1, keepdim=True), mass.sum(1, keepdim=True)
    p = torch.where(total > 0, mass / total.clamp_min(torch.finfo(mass.dtype).tiny), 0).detach()
    log_sum = torch.where(some, scores, 0).logsumexp(1)
    mean = (p * torch.where(picked, scores, 0)).sum(1)
    # Where a query teaches nothing, p is 0 and so is its share of the log sum.
    return torch.xlogy(p, p).sum() + (p.sum(1) * log_sum - mean).sum()


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, (base, "picks_divergence", _divergence))


REWRITE = Rewrite(
    name="divergence_by_log_sum_exp",
    title="the KL term is made of a log sum, a mean and an entropy",
    apply=_apply,
    kinds=("all", "csa"),
)
