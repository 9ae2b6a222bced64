"""B6b: keys of the indexer alone are rotated by the index of their window (a variant of B6).

Mechanism: the indexer's compressor is another one than the attention's, and only that has it right. What is picked, and
the KL term, move; with no more rows than picks, the KL term alone.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.b6_rows_rotated_by_window_index import by_window_index
from harness.faults.patching import parts, told
from harness.faults.registry import Fault
from v4model.layers.indexer import Indexer

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(parts(subject, Indexer), by_window_index)


FAULT = Fault(
    name="B6b",
    title="the indexer's keys are rotated by window index instead of index x ratio",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=("all", "csa"),
    apply=_apply,
    strata=("sample with several CSA windows",),
)
