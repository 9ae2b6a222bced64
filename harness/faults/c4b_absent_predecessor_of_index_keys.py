"""C4b: slots of the window before a sample's first one get gate 0, not -inf, in the indexer's compressor alone.

Mechanism: that of C4, where the two compressors are two classes and one of them was mended. The attention's rows are
right; first rows get other scores, so that others are picked where there are more than top-k, and the KL term moves.

Measured on packs of 60 to 200 tokens: the main loss moves by 4e-4 (median), 3e-3 at most.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.c4_absent_predecessor_with_gate_0 import pooled_with_gate_0
from harness.faults.compress import compressed
from harness.faults.compress import healthy as healthy_compressor
from harness.faults.patching import parts, replaced
from harness.faults.registry import Fault
from v4model.layers.compressor import Compressor
from v4model.layers.context import PackContext
from v4model.layers.indexer import Indexer

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    of_indexers = [indexer.compressor for indexer in parts(subject, Indexer)]

    def forward(compressor: Compressor, x: Tensor, *, context: PackContext, where: str) -> Tensor:
        if not any(compressor is other for other in of_indexers):
            return healthy_compressor(compressor, x, context=context, where=where)
        return compressed(compressor, x, context=context, where=where, pool=pooled_with_gate_0)

    return replaced(subject, Compressor, "forward", forward)


FAULT = Fault(
    name="C4b",
    title="a first window's absent predecessor has gate 0 in the indexer's keys alone",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=("all", "csa"),
    apply=_apply,
)
