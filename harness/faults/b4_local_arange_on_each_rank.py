"""B4: every rank counts positions from its own first token (NVIDIA/Megatron-LM#5243).

Mechanism: a sample that reaches over a cut starts again at 0 behind it, and a halo arrives with the positions that its
own rank gave it: on two ranks [0, 1, 0, 1] for [0, 1, 2, 3]. Pooled rows keep the positions of their windows.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from harness.faults.corners import SAMPLE_OVER_RANKS
from harness.faults.on_ranks import told_on_ranks
from harness.faults.patching import trunk_and_mtp
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _from_own_start(context: PackContext) -> PackContext:
    plan, position = context.plan, context.key_position
    token = torch.arange(plan.end - position.numel(), plan.end, device=position.device)
    return replace(context, key_position=torch.minimum(position, token % plan.size))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told_on_ranks(trunk_and_mtp(subject), _from_own_start)


FAULT = Fault(
    name="B4",
    title="every rank counts positions from its own first token",
    reference="NVIDIA/Megatron-LM#5243",
    expected="cp_matches_one_rank",
    kinds=KINDS,
    apply=_apply,
    ranks=(2, 4),
    strata=SAMPLE_OVER_RANKS,
)
