"""C12c: the scores of the picked rows are detached too: nothing teaches the indexer.

Mechanism: scores come out of the block that chooses, which runs without gradients, since a choice has none. The KL term
has its right value and no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from harness.faults.patching import giving, parts
from harness.faults.registry import Fault
from v4model.layers.indexer import Indexer, Picked

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _detached(_keywords: Mapping[str, Any], picked: Picked) -> Picked:
    return Picked(picked.picks, picked.scores.detach())


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return giving(parts(subject, Indexer), _detached)


FAULT = Fault(
    name="C12c",
    title="the indexer's scores carry no gradient",
    reference="no public report",
    expected="every_parameter_has_a_gradient",
    kinds=("all", "csa"),
    apply=_apply,
)
