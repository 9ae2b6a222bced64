"""F2b: the balance loss of MTP depth 2 alone is taken over the pack (a variant of F2).

Mechanism: F2 in the last of the learned routers. Every output, label and other router is right.
The loss moves by less than 1e-4 of itself: 6e-5 at most in 30 packs of kind `all`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.f2_balance_over_the_pack import over_the_pack
from harness.faults.patching import replaced
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext
from v4model.layers.router import LearnedRouter, RouterStatistics, Routing

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

_healthy = LearnedRouter.statistics


def _in_one_depth(
    router: LearnedRouter, routing: Routing, *, counted: Tensor, context: PackContext
) -> RouterStatistics:
    statistics = over_the_pack if router.name.startswith("mtp.1.") else _healthy
    return statistics(router, routing, counted=counted, context=context)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, LearnedRouter, "statistics", _in_one_depth)


FAULT = Fault(
    name="F2b",
    title="the balance loss of MTP depth 2 is taken over the pack",
    reference="NVIDIA/Megatron-LM#6108, at one depth",
    expected="packed_equals_alone",
    kinds=KINDS,
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
