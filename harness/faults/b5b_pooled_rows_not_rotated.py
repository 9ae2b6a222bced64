"""B5b: pooled rows are not rotated (ml-explore/mlx-lm#1189).

Mechanism: rows of the compressor and of the indexer stay as they are, as if each began at position 0; queries and the
output are rotated by theirs. The first window of a sample is right.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.corners import SEVERAL_WINDOWS
from harness.faults.falsified import with_pool_positions
from harness.faults.patching import told, trunk_and_mtp
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.pack.windows import Windows

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _never(_context: PackContext, windows: Windows) -> Tensor:
    return torch.zeros_like(windows.index)


def _unrotated(context: PackContext) -> PackContext:
    return with_pool_positions(context, _never)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), _unrotated)


FAULT = Fault(
    name="B5b",
    title="pooled rows are not rotated",
    reference="ml-explore/mlx-lm#1189",
    expected="matches_plain_reading",
    kinds=("all", "csa", "hca"),
    apply=_apply,
    strata=SEVERAL_WINDOWS,
)
