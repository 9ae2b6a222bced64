"""B2b: the indexer alone takes positions from an arange over the pack (a variant of B2).

Mechanism: its queries are rotated by their index in the pack, its keys by the positions of their windows in the sample.
Attention itself is right: only the choice of rows and the KL term move.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.falsified import counted_over_the_pack
from harness.faults.patching import parts, told
from harness.faults.registry import Fault
from v4model.layers.indexer import Indexer

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(parts(subject, Indexer), counted_over_the_pack)


FAULT = Fault(
    name="B2b",
    title="the indexer counts positions over the pack, the attention in each sample",
    reference="radixark/miles#2038, in the indexer",
    expected="packed_equals_alone",
    kinds=("all", "csa"),
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
