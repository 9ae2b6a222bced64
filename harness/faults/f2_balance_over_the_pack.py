"""F2: the balance loss is taken over the pack instead of over each sample (NVIDIA/Megatron-LM#6108).

Mechanism: counts and shares of all samples are added before their product is taken. Selections and the router's output
are right.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.patching import replaced
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model import PackLayout
from v4model.layers.context import PackContext
from v4model.layers.router import LearnedRouter, RouterStatistics, Routing

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

_healthy = LearnedRouter.statistics


def over_the_pack(
    router: LearnedRouter, routing: Routing, *, counted: Tensor, context: PackContext
) -> RouterStatistics:
    """A learned router's statistics with all samples as one."""
    # All samples are sample 0, and padding stays -1.
    plan = replace(context.plan, layout=PackLayout.single(context.layout.total))
    whole = replace(context, plan=plan, sample=context.sample.clamp_max(0))
    return _healthy(router, routing, counted=counted, context=whole)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, LearnedRouter, "statistics", over_the_pack)


FAULT = Fault(
    name="F2",
    title="the balance loss is taken over the pack, not over each sample",
    reference="NVIDIA/Megatron-LM#6108",
    expected="packed_equals_alone",
    kinds=KINDS,
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
