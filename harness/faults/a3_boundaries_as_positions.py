"""A3: `cu_seqlens` bound positionally to `position_ids` in the indexer (AMD-AGI/Primus#1062).

Mechanism: the indexer rotates its queries by the samples' boundaries, one a token and the last one from there on,
instead of by positions. Its keys, and all else in the layer, are right: only the choice of rows and the KL term move.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from harness.faults.falsified import tokens_of
from harness.faults.patching import parts, told
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.layers.indexer import Indexer

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _boundaries_as_positions(context: PackContext) -> PackContext:
    token = tokens_of(context)
    boundaries = torch.tensor([0, *context.layout.lengths], device=token.device).cumsum(0)
    before = context.key_position[: context.key_position.numel() - token.numel()]
    of_queries = boundaries[token.clamp_max(len(boundaries) - 1)]
    return replace(context, key_position=torch.cat([before, of_queries]))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(parts(subject, Indexer), _boundaries_as_positions)


FAULT = Fault(
    name="A3",
    title="the indexer takes the boundaries of the samples for the positions of the tokens",
    reference="AMD-AGI/Primus#1062",
    expected="packed_equals_alone",
    kinds=("all", "csa"),
    apply=_apply,
)
