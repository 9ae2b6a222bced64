"""F3: the balance loss grows with the number of ranks (NVIDIA/Megatron-LM#2217).

Mechanism: every rank holds the balance loss of the whole pack, and these are added up as if each were a share of it.
Selections and the router's output are right.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext
from v4model.layers.router import LearnedRouter, RouterStatistics, Routing

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

_healthy = LearnedRouter.statistics


def _added_up(router: LearnedRouter, routing: Routing, *, counted: Tensor, context: PackContext) -> RouterStatistics:
    whole = _healthy(router, routing, counted=counted, context=context)
    return replace(whole, balance_sum=whole.balance_sum * context.plan.ranks)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, LearnedRouter, "statistics", _added_up)


FAULT = Fault(
    name="F3",
    title="the balance loss grows with the number of ranks",
    reference="NVIDIA/Megatron-LM#2217",
    expected="cp_matches_one_rank",
    kinds=KINDS,
    apply=_apply,
    ranks=(2, 4),
)
