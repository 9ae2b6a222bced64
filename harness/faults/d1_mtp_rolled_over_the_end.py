"""D1: MTP's embeddings and labels are rolled across the sample's end (measured in nemo_automodel 0.7.0).

Mechanism: depth k reads the embedding k tokens further in the pack and is labelled by the token k + 1 further, so that
the last positions of a sample read and predict the first tokens of the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.falsified import ahead_in_pack, with_ahead
from harness.faults.labels import labelled
from harness.faults.patching import model_of, told
from harness.faults.registry import Fault
from harness.kinds import KINDS

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


@contextmanager
def _apply(subject: Subject) -> Iterator[None]:
    rolled = told(model_of(subject).mtp, lambda context: with_ahead(context, ahead_in_pack))
    with rolled, labelled(subject, ahead_in_pack, trunk=False):
        yield


FAULT = Fault(
    name="D1",
    title="MTP's embeddings and labels are rolled across the end of a sample",
    reference="measured in nemo_automodel 0.7.0",
    expected="labels_stay_inside",
    kinds=KINDS,
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
