"""A7: padding is known by its token id, and real tokens of that id are dropped (NVIDIA-NeMo/Automodel#3223).

Mechanism: the mask that keeps padding from the experts is made of the ids. A real token that equals the pad id gets no
expert's output, not the shared one's either, and is left out of the router's statistics, alone as in a pack.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext
from v4model.layers.moe import MoE
from v4model.layers.router import RouterStatistics

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

PAD_ID = 0

_healthy = MoE.forward


def _by_id(moe: MoE, x: Tensor, *, counted: Tensor, context: PackContext) -> tuple[Tensor, RouterStatistics | None]:
    kept = context.tokens != PAD_ID
    out, statistics = _healthy(moe, x, counted=counted & kept, context=context)
    return torch.where(kept[:, None], out, 0), statistics


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, MoE, "forward", _by_id)


FAULT = Fault(
    name="A7",
    title="padding is known by token id: the experts drop real tokens of that id",
    reference="NVIDIA-NeMo/Automodel#3223",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
)
