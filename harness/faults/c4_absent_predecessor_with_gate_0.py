"""C4: the slots of the window before a sample's first one get gate 0 instead of -inf.

Mechanism: exp(0) joins the softmax's denominator, so that every first row is too small by a factor that depends on the
channel; the RMS norm after it does not undo that. Every sample is as wrong alone as packed. A hazard of padding the
gates with zeros; no public report is known.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from v4model.layers import compressor
from v4model.ops.pool import gather_rows
from v4model.pack.windows import Windows

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def pooled_with_gate_0(kv: Tensor, gate: Tensor, position_bias: Tensor, *, windows: Windows) -> Tensor:
    width = kv.shape[1] // 2
    now, before = windows.slots(), windows.slots(back=1)
    gate_now = gather_rows(gate[:, width:], now) + position_bias[:, width:]
    gate_before = gather_rows(gate[:, :width], before) + position_bias[:, :width]
    gate_before = torch.where((before >= 0)[..., None], gate_before, 0)
    weight = torch.softmax(torch.cat([gate_before, gate_now], dim=1), dim=1)
    values = torch.cat([gather_rows(kv[:, :width], before), gather_rows(kv[:, width:], now)], dim=1)
    return (weight * values).sum(1).to(kv.dtype)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, compressor, "pool_overlapping_windows", pooled_with_gate_0)


FAULT = Fault(
    name="C4",
    title="a first window's absent predecessor has gate 0, not -inf",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=("all", "csa"),
    apply=_apply,
)
