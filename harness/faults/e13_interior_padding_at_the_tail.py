"""E13: padding between samples is taken for padding at the tail (NVIDIA-NeMo/Automodel#3640).

Mechanism: on ranks the layers know the samples one right behind the other, as their lengths add up, and all padding
behind the last. Ids, labels and the loss mask lie where they are. Shows where padding lies before a sample.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.on_ranks import told_on_ranks, with_layout
from harness.faults.patching import trunk_and_mtp
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model import PackLayout
from v4model.layers.context import PackContext

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _closed_up(context: PackContext) -> PackContext:
    layout = context.layout
    return with_layout(context, PackLayout.from_lengths(layout.lengths, total=layout.total))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told_on_ranks(trunk_and_mtp(subject), _closed_up)


FAULT = Fault(
    name="E13",
    title="padding between samples is taken for padding at the tail",
    reference="NVIDIA-NeMo/Automodel#3640",
    expected="cp_matches_one_rank",
    kinds=KINDS,
    apply=_apply,
    ranks=(2, 4),
)
