"""A6: a 2-D mask of ones switches the detection of packs off (huggingface/transformers#46634).

Mechanism: boundaries are read from positions only where no mask was given. A collator that always gives one, all ones
up to the tail, makes one sample of the pack for attention; with padding inside, the mask has zeros and is not taken for
that. Positions restart as they should, and so do the router's samples.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.faults.on_ranks import with_layout
from harness.faults.patching import parts, told
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model import PackLayout
from v4model.layers.attention import Attention
from v4model.layers.context import PackContext

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _undetected(context: PackContext) -> PackContext:
    layout = context.layout
    end = layout.starts[-1] + layout.lengths[-1]
    if end != layout.real_tokens:
        return context
    one = PackLayout((end,), (0,), layout.total)
    return replace(with_layout(context, one), key_position=context.key_position)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(parts(subject, Attention), _undetected)


FAULT = Fault(
    name="A6",
    title="a mask of ones switches the detection of packs off: attention sees one sample",
    reference="huggingface/transformers#46634",
    expected="query_sees_only_its_sample",
    kinds=KINDS,
    apply=_apply,
    strata=("no padding", "padding at the tail alone"),
)
