"""C13b: unused places for picks reach the KL term (NVIDIA/Megatron-LM#5011, review).

Mechanism: scores lie in a buffer of top-k places a query, filled with 0, and the softmax of them runs over all places.
Queries with fewer rows give a part of the indexer's probability to rows that do not exist.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from v4model.layers.attention import base

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _divergence(scores: Tensor, mass: Tensor, *, picks: Tensor) -> Tensor:
    p = (mass / mass.sum(1, keepdim=True).clamp_min(torch.finfo(mass.dtype).tiny)).detach()
    log_q = torch.log_softmax(torch.where(picks >= 0, scores, 0), dim=1)
    return (torch.xlogy(p, p) - p * log_q).sum()


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, base, "picks_divergence", _divergence)


FAULT = Fault(
    name="C13b",
    title="places without a pick take a share of the indexer's softmax",
    reference="NVIDIA/Megatron-LM#5011",
    expected="matches_plain_reading",
    kinds=("all", "csa"),
    apply=_apply,
)
