"""D8b: the second MTP depth reads the embedding of the first.

Mechanism: that of D8 for the embeddings alone, where one shifted tensor is handed to all depths and labels are rolled a
depth. The depth predicts the right token from the wrong one.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.falsified import with_ahead
from harness.faults.patching import model_of, told
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _one_step(context: PackContext) -> PackContext:
    return with_ahead(context, lambda layout, _steps: layout.ahead(1))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(model_of(subject).mtp[1:2], _one_step)


FAULT = Fault(
    name="D8b",
    title="the second MTP depth reads the embedding of token t + 1",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
    strata=("several MTP depths",),
)
