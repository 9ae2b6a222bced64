"""C18: the last index head is left out of the scores.

Mechanism: a kernel goes over the heads in tiles and forgets the last, incomplete one. With one head of many missing,
most queries pick the same rows as before: the loss says nothing. No public report is known.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from v4model.layers import indexer
from v4model.ops.pick import index_scores

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _without_the_last(q: Tensor, gate: Tensor, keys: Tensor, *, rows: Tensor) -> Tensor:
    return index_scores(q[:, :-1], gate[:, :-1], keys, rows=rows)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, indexer, "index_scores", _without_the_last)


FAULT = Fault(
    name="C18",
    title="the last index head is left out of the scores",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=("all", "csa"),
    apply=_apply,
)
