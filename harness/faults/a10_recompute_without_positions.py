"""A10: the wrapper that recomputes a block drops an argument (NVIDIA/Megatron-LM#4592, #4593).

Mechanism: the forward pass is right; what the backward pass computes again is told no positions and counts them over
the pack. Every value is right to the bit, and gradients of samples behind the first are those of other positions.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.falsified import counted_over_the_pack
from harness.faults.patching import replaced
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.model.block import Block, BlockOutput
from v4model.ops.blocks import recomputed

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _forward(block: Block, streams: Tensor, *, counted: Tensor, context: PackContext) -> BlockOutput:
    told = [counted_over_the_pack(context), context]

    def run(streams: Tensor) -> BlockOutput:
        known = told.pop() if len(told) > 1 else told[0]
        return block._run(streams, counted=counted, context=known)

    return recomputed(run, streams, when=True)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, Block, "forward", _forward)


FAULT = Fault(
    name="A10",
    title="recomputed blocks are told no positions and count them over the pack",
    reference="NVIDIA/Megatron-LM#4592, #4593",
    expected="packed_equals_alone",
    kinds=("all", "csa", "hca"),
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
