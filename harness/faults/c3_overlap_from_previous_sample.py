"""C3: the overlap half of a sample's first window is taken from the previous sample (NVIDIA-NeMo/Automodel#2696).

Mechanism: the window before a window is the `ratio` tokens before it in the stream; only the pack's first window has
none.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.falsified import with_pools
from harness.faults.patching import told, trunk_and_mtp
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.pack.visibility import PoolVisibility
from v4model.pack.windows import Windows

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


@dataclass(frozen=True, eq=False)
class _OverlappingInStream(Windows):
    def slots(self, *, back: int = 0) -> Tensor:
        before = self.first_token[:, None] - back * self.ratio
        return torch.where(before >= 0, before + torch.arange(self.ratio, device=before.device), -1)

    def part(self, rows: range) -> Windows:
        return _in_stream(super().part(rows))


def _in_stream(windows: Windows) -> Windows:
    return _OverlappingInStream(windows.ratio, windows.first_token, windows.index, windows.sample)


def _overlapping(_context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    return replace(pool, windows=_in_stream(pool.windows))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), lambda context: with_pools(context, _overlapping))


FAULT = Fault(
    name="C3",
    title="the overlap half of a sample's first window comes from the previous sample",
    reference="NVIDIA-NeMo/Automodel#2696",
    expected="query_sees_only_its_sample",
    kinds=("all", "csa"),
    apply=_apply,
)
