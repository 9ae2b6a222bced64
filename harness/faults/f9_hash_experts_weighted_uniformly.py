"""F9: hash layers weigh their experts uniformly.

Mechanism: a table chooses, so nothing is taken to weigh by: every expert gets scaling / k. The gate's weight stays
without a gradient, alone as in a pack. No public report is known.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.router import HashRouter, Routing

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _uniform(router: HashRouter, affinity: Tensor, experts: Tensor) -> Routing:
    weight = torch.full(experts.shape, router.scaling / router.top_k, dtype=affinity.dtype, device=affinity.device)
    return Routing(experts, weight, affinity)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, HashRouter, "weigh", _uniform)


FAULT = Fault(
    name="F9",
    title="hash layers weigh their experts uniformly",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
)
