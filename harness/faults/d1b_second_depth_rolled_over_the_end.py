"""D1b: the second MTP depth's embeddings and labels are rolled across the sample's end.

Mechanism: that of D1 where boundaries are handed to the first depth alone: the second one rolls what the first left by
one more, over whatever follows. The main loss and the first depth's are right to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.faults.falsified import ahead_in_pack, with_ahead
from harness.faults.labels import is_second_mtp, labelled_at
from harness.faults.patching import model_of, told
from harness.faults.registry import Fault
from harness.kinds import KINDS

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


@contextmanager
def _apply(subject: Subject) -> Iterator[None]:
    rolled = told(model_of(subject).mtp[1:2], lambda context: with_ahead(context, ahead_in_pack))
    with rolled, labelled_at(subject, ahead_in_pack, at=is_second_mtp):
        yield


FAULT = Fault(
    name="D1b",
    title="the second MTP depth is rolled across the end of a sample",
    reference="measured in nemo_automodel 0.7.0",
    expected="labels_stay_inside",
    kinds=KINDS,
    apply=_apply,
    strata=("several MTP depths",),
)
