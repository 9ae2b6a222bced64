"""F1: padding is counted in the router's statistics (NVIDIA/Megatron-LM#2121, huggingface/transformers#28505).

Mechanism: counts and shares are summed over each sample's slot, the padding behind its tokens included. Outputs are
right; the balance loss and the selection bias move.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.corners import PADDING
from harness.faults.falsified import own
from harness.faults.patching import replaced
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model import PackLayout
from v4model.layers.context import PackContext
from v4model.layers.router import LearnedRouter, RouterStatistics, Routing

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

_healthy = LearnedRouter.statistics


def _slot_of(layout: PackLayout) -> Tensor:
    """[T] int64: the sample that each token belongs to, or that the padding stands behind."""
    return torch.bucketize(torch.arange(layout.total), torch.tensor(layout.starts), right=True) - 1


def with_padding(router: LearnedRouter, routing: Routing, *, counted: Tensor, context: PackContext) -> RouterStatistics:
    """A learned router's statistics over the slots."""
    slots = replace(context, sample=own(context, _slot_of(context.layout)))
    return _healthy(router, routing, counted=counted | (context.sample < 0), context=slots)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, LearnedRouter, "statistics", with_padding)


FAULT = Fault(
    name="F1",
    title="padding is counted in the router's statistics",
    reference="NVIDIA/Megatron-LM#2121",
    expected="padding_changes_nothing",
    kinds=KINDS,
    apply=_apply,
    strata=PADDING,
)
