"""C14b: a pack without a complete window skips the indexer.

Mechanism: that of C14 in the indexer alone: there is nothing to choose, so it runs without gradients, while the
attention's own compressor keeps its edge.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from v4model.layers.context import Inputs, PackContext
from v4model.layers.indexer import Indexer, Picked

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    healthy = Indexer.forward

    def forward(indexer: Indexer, inputs: Inputs, *, context: PackContext, where: str) -> Picked:
        some = context.visibility.pools[indexer.ratio].windows.count > 0
        with torch.set_grad_enabled(some and torch.is_grad_enabled()):
            return healthy(indexer, inputs, context=context, where=where)

    return replaced(subject, Indexer, "forward", forward)


FAULT = Fault(
    name="C14b",
    title="without a complete window the indexer's parameters have no gradient",
    reference="AMD-AGI/Primus#1062",
    expected="every_parameter_has_a_gradient",
    kinds=("all", "csa"),
    apply=_apply,
    strata=("pack without a complete CSA window",),
)
