"""A5: boundaries of two micro-batches are joined without offsets (NVIDIA/Megatron-LM#5454).

Mechanism: a row holds the samples of two micro-batches one after another, and the second one's boundaries still count
from its own start. [0, 5, 12] and [0, 6, 12] become [0, 5, 6, 12]: samples of the first are cut by boundaries of the
second, and what lies behind the last boundary is one sample. Attention reads by these; positions are right.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.on_ranks import with_layout
from harness.faults.patching import parts, told
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model import PackLayout
from v4model.layers.attention import Attention
from v4model.layers.context import PackContext

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def joined(layout: PackLayout) -> PackLayout:
    """The layout that the boundaries of the samples' first and second half, joined without offsets, describe."""
    if layout.num_samples < 2:
        return layout
    half, end = (layout.num_samples + 1) // 2, layout.starts[-1] + layout.lengths[-1]
    boundaries = [*layout.starts, end]
    offset = boundaries[half]
    cuts = sorted({*boundaries[: half + 1], *(cut - offset for cut in boundaries[half:]), end})
    return PackLayout(tuple(stop - start for start, stop in pairwise(cuts)), tuple(cuts[:-1]), layout.total)


def _joined(context: PackContext) -> PackContext:
    return replace(with_layout(context, joined(context.layout)), key_position=context.key_position)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(parts(subject, Attention), _joined)


FAULT = Fault(
    name="A5",
    title="boundaries of two micro-batches are joined without offsets",
    reference="NVIDIA/Megatron-LM#5454",
    expected="packed_equals_alone",
    kinds=KINDS,
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
