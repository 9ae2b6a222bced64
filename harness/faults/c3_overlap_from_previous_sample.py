"""C3: the overlap half of a sample's first window is taken from the previous sample (NVIDIA-NeMo/Automodel#2696).

Mechanism: the window before a window is the `ratio` tokens before it in the stream; only the pack's first window has
none.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.falsified import reaching, with_pools
from harness.faults.patching import told, trunk_and_mtp
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.pack.visibility import PoolVisibility

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _overlapping(_context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    return replace(pool, windows=reaching(pool.windows, torch.zeros_like(pool.windows.first_token)))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), lambda context: with_pools(context, _overlapping))


FAULT = Fault(
    name="C3",
    title="the overlap half of a sample's first window comes from the previous sample",
    reference="NVIDIA-NeMo/Automodel#2696",
    expected="query_sees_only_its_sample",
    kinds=("all", "csa"),
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
