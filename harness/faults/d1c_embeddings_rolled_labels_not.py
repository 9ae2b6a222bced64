"""D1c: MTP's embeddings are rolled across the sample's end, its labels are not.

Mechanism: labels have a mask at the end of each sample, and with it the positions that embed a neighbour's tokens have
no loss: it was said to do no harm. Every loss of a head is right to the bit, but these positions are counted by the
depth's router, and their outputs follow the neighbour.

Measured on packs of 60 to 200 tokens: the main loss does not move, the total by 9e-5 (median), 4e-4 at most.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.falsified import ahead_in_pack, with_ahead
from harness.faults.patching import model_of, told
from harness.faults.registry import Fault
from harness.kinds import KINDS

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(model_of(subject).mtp, lambda context: with_ahead(context, ahead_in_pack))


FAULT = Fault(
    name="D1c",
    title="MTP's embeddings are rolled across the end of a sample where no label follows",
    reference="no public report",
    expected="query_sees_only_its_sample",
    kinds=KINDS,
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
