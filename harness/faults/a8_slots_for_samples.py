"""A8: padded boundaries are used where the real ones are meant (NVIDIA-NeMo/RL#4070).

Mechanism: a sample reaches up to the start of the next one. The padding between them is the sample's last tokens:
computed, routed, counted and pooled. It stands behind every real token, so that no real value moves but through counts.
Embeddings of padding stay 0, and labels are right.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.corners import INTERIOR_PADDING
from harness.faults.on_ranks import with_layout
from harness.faults.patching import told, trunk_and_mtp
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model import PackLayout
from v4model.layers.context import PackContext

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _slots(context: PackContext) -> PackContext:
    layout = context.layout
    ends = (*layout.starts[1:], layout.starts[-1] + layout.lengths[-1])
    lengths = tuple(end - start for start, end in zip(layout.starts, ends, strict=True))
    return with_layout(context, PackLayout(lengths, layout.starts, layout.total))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), _slots)


FAULT = Fault(
    name="A8",
    title="padded boundaries stand where real ones are meant: padding between samples is real",
    reference="NVIDIA-NeMo/RL#4070",
    expected="padding_changes_nothing",
    kinds=KINDS,
    apply=_apply,
    strata=INTERIOR_PADDING,
)
