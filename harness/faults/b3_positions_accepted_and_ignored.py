"""B3: positions are accepted and ignored (NVIDIA-NeMo/Automodel#2377).

Mechanism: whatever is rotated is rotated by the number of its row in its own tensor, pooled rows by that number times
the ratio. The first sample is right, and so is every one whose predecessors are made of whole windows: an offset that
queries and keys share cancels, which is why dense layers alone cannot show it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.corners import OFF_THE_GRID
from harness.faults.falsified import counted_over_the_pack, with_pool_positions
from harness.faults.patching import told, trunk_and_mtp
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.pack.windows import Windows

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _number_of_row(context: PackContext, windows: Windows) -> Tensor:
    own = context.plan.windows(ratio=windows.ratio)[context.plan.rank]
    return torch.arange(own.start, own.stop, device=windows.index.device) * windows.ratio


def _ignored(context: PackContext) -> PackContext:
    return with_pool_positions(counted_over_the_pack(context), _number_of_row)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), _ignored)


FAULT = Fault(
    name="B3",
    title="positions are accepted and ignored: rows are rotated by their number in the tensor",
    reference="NVIDIA-NeMo/Automodel#2377",
    expected="packed_equals_alone",
    kinds=("all", "csa", "hca"),
    apply=_apply,
    strata=OFF_THE_GRID,
)
