"""C10b: the scale of the index scores is missing in the MTP blocks alone.

Mechanism: that of C10 where MTP builds its indexer by itself. The main loss, every MTP loss and the trunk's KL are the
same to the bit; of one sum, a part is wrong.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.c10_index_scores_unscaled import unscaled
from harness.faults.patching import giving, parts_of_mtp
from harness.faults.registry import Fault
from v4model.layers.indexer import Indexer

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return giving(parts_of_mtp(subject, Indexer), unscaled)


FAULT = Fault(
    name="C10b",
    title="the scale of the index scores is missing in MTP",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=("all", "csa"),
    apply=_apply,
)
