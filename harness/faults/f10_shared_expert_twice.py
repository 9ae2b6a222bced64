"""F10: the shared expert is added twice.

Mechanism: once among the experts' outputs and once behind them. No public report is known.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.experts import SharedExpert

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

_healthy = SharedExpert.forward


def _twice(shared: SharedExpert, x: Tensor) -> Tensor:
    return 2 * _healthy(shared, x)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, SharedExpert, "forward", _twice)


FAULT = Fault(
    name="F10",
    title="the shared expert is added twice",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
)
