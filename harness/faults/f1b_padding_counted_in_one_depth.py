"""F1b: padding is counted in the router's statistics of MTP depth 2 alone (a variant of F1).

Mechanism: the last of the learned routers was given no mask. Every output, label and other router is right.
The loss moves by 1e-4 of itself in the median of 30 packs of kind `all`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.corners import PADDING
from harness.faults.f1_padding_counted import with_padding
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
    statistics = with_padding if router.name.startswith("mtp.1.") else _healthy
    return statistics(router, routing, counted=counted, context=context)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, LearnedRouter, "statistics", _in_one_depth)


FAULT = Fault(
    name="F1b",
    title="padding is counted in the router's statistics of MTP depth 2",
    reference="NVIDIA/Megatron-LM#2121, at one depth",
    expected="padding_changes_nothing",
    kinds=KINDS,
    apply=_apply,
    strata=PADDING,
)
