"""D8: the shift of depth 1 is used at every MTP depth.

Mechanism: depth 2 reads the embedding of token t + 1 and is labelled by token t + 2, as depth 1 is. Seen only with two
depths or more, and only by what knows which token belongs to a depth: samples alone are as wrong as packed ones. No
public report is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.faults.falsified import with_ahead
from harness.faults.labels import labelled
from harness.faults.patching import model_of, told
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _always_one(context: PackContext) -> PackContext:
    return with_ahead(context, lambda layout, _steps: layout.ahead(1))


@contextmanager
def _apply(subject: Subject) -> Iterator[None]:
    shifted = told(model_of(subject).mtp, _always_one)
    with shifted, labelled(subject, lambda layout, _steps: layout.ahead(2), trunk=False):
        yield


FAULT = Fault(
    name="D8",
    title="every MTP depth shifts as depth 1 does",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
    strata=("several MTP depths",),
)
