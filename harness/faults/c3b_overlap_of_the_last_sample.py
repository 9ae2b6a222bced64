"""C3b: the overlap half of the last sample's first window comes from the sample before it.

Mechanism: that of C3 (NVIDIA-NeMo/Automodel#2696) for one sample of the pack, where the mask of first windows is made
in a loop over boundaries that ends one too early.
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


def _overlapping(context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    windows = pool.windows
    start = windows.first_token - windows.position
    last = windows.sample == context.layout.num_samples - 1
    return replace(pool, windows=reaching(windows, torch.where(last, 0, start)))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), lambda context: with_pools(context, _overlapping))


FAULT = Fault(
    name="C3b",
    title="the overlap half of the last sample's first window comes from the sample before",
    reference="NVIDIA-NeMo/Automodel#2696",
    expected="query_sees_only_its_sample",
    kinds=("all", "csa"),
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
