"""C10: the scale of the index scores, heads^-0.5 * width^-0.5, is missing (90.5 times too large in the released model).

Mechanism: a positive factor changes no order, so that the same rows are picked and logits and their losses are right to
the bit; it shows only where the softmax of the scores is taken, in the KL term and what the indexer learns from it.
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


def unscaled(keywords: Mapping[str, Any], picked: Picked) -> Picked:
    config = keywords["context"].config
    return Picked(picked.picks, picked.scores * (config.index_n_heads * config.index_head_dim) ** 0.5)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return giving(parts(subject, Indexer), unscaled)


FAULT = Fault(
    name="C10",
    title="the scale of the index scores is missing",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=("all", "csa"),
    apply=_apply,
)
