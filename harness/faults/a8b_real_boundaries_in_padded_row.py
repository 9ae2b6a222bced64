"""A8b: real boundaries are used to find samples in a padded row (NVIDIA-NeMo/RL#4070).

Mechanism: the reverse of A8. Boundaries that count real tokens only are taken for places in a row with padding between
the samples: behind the first padding, every sample is looked for before its place, over the end of the one before it.
Labels are right.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from itertools import accumulate
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


def _unpadded(context: PackContext) -> PackContext:
    lengths = context.layout.lengths
    starts = tuple(accumulate(lengths[:-1], initial=0))
    return with_layout(context, PackLayout(lengths, starts, context.layout.total))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), _unpadded)


FAULT = Fault(
    name="A8b",
    title="real boundaries are taken for places in a padded row",
    reference="NVIDIA-NeMo/RL#4070",
    expected="query_sees_only_its_sample",
    kinds=KINDS,
    apply=_apply,
    strata=INTERIOR_PADDING,
)
