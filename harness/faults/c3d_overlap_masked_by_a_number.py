"""C3d: the overlap half of a first window is masked by a finite number: a trace of the sample before comes through.

Mechanism: the gates of the four tokens before a sample get -10 added instead of becoming -inf, as with an additive mask
made for logits of another size. Their weight is 5e-5 of the others' and never 0.

Measured on packs of 60 to 200 tokens: the main loss moves by 2e-7 (median), 5e-7 at most.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.falsified import reaching
from harness.faults.patching import replaced
from harness.faults.registry import Fault
from v4model.layers import compressor
from v4model.ops.pool import gather_rows
from v4model.pack.windows import Windows

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


_MASK = -10.0


def _softly(kv: Tensor, gate: Tensor, position_bias: Tensor, *, windows: Windows) -> Tensor:
    width = kv.shape[1] // 2
    now, before = windows.slots(), reaching(windows, torch.zeros_like(windows.first_token)).slots(back=1)
    gate_now = gather_rows(gate[:, width:], now) + position_bias[:, width:]
    gate_before = gather_rows(gate[:, :width], before) + position_bias[:, :width]
    gate_before = torch.where((windows.index == 0)[:, None, None], gate_before + _MASK, gate_before)
    gate_before = torch.where((before >= 0)[..., None], gate_before, float("-inf"))
    weight = torch.softmax(torch.cat([gate_before, gate_now], dim=1), dim=1)
    values = torch.cat([gather_rows(kv[:, :width], before), gather_rows(kv[:, width:], now)], dim=1)
    return (weight * values).sum(1).to(kv.dtype)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, compressor, "pool_overlapping_windows", _softly)


FAULT = Fault(
    name="C3d",
    title="the overlap half of a first window is masked by -10, not by -inf",
    reference="no public report",
    expected="query_sees_only_its_sample",
    kinds=("all", "csa"),
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
