"""D6b: the trunk's loss mask is not rolled: it belongs to the token read, not to the label.

Mechanism: labels are shifted and the mask is not, so that position t counts where token t is supervised. Of each answer
the first token is not learned, and the last position, which has no label in its sample, is not counted either.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.labels import counted_at
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _own(context: PackContext, steps: int) -> Tensor:
    return context.ahead_supervised[: len(context.sample)] & (context.ahead(steps) >= 0)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return counted_at(subject, _own, at=lambda depth: depth == 0)


FAULT = Fault(
    name="D6b",
    title="the loss mask is that of the token read, not of the label",
    reference="no public report",
    expected="labels_stay_inside",
    kinds=KINDS,
    apply=_apply,
)
