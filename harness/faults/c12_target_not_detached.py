"""C12: the indexer's target is not detached.

Mechanism: the KL term pulls the attention towards what the indexer says, beside the other way round. Every value is
right to the bit, packed and alone; only gradients of the attention and all that stands before it are wrong. No public
report is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from harness.faults.softmax import teaching
from v4model.layers.attention import base

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _divergence(scores: Tensor, mass: Tensor, *, picks: Tensor) -> Tensor:
    some, picked = (picks >= 0).any(1), picks >= 0
    total = mass.sum(1, keepdim=True)
    # p is 1 where nothing is picked: its logarithm is 0, and no gradient passes.
    p = torch.where(picked & (total > 0), mass / total.clamp_min(torch.finfo(mass.dtype).tiny), 1)
    log_q = torch.log_softmax(torch.where(some[:, None], scores, 0), dim=1)
    return (torch.xlogy(p, p) - p * torch.where(picked, log_q, 0)).sum()


@contextmanager
def _apply(subject: Subject) -> Iterator[None]:
    kept = teaching(subject, lambda picked, _sink: picked.sum(1))
    with kept, replaced(subject, base, "picks_divergence", _divergence):
        yield


FAULT = Fault(
    name="C12",
    title="the KL target is not detached: the KL term teaches the attention",
    reference="no public report",
    expected="kl_reaches_only_the_indexer",
    kinds=("all", "csa"),
    apply=_apply,
)
