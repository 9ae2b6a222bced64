"""C12b: the input of the indexer's keys is not detached.

Mechanism: the inputs of its queries and weights are, and the one of its compressor, handed over separately, was
forgotten. The KL term teaches the layers below. Every value is right to the bit. No public report is known.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from v4model.layers.context import Inputs, PackContext
from v4model.layers.indexer import Indexer, Picked
from v4model.ops.pick import index_scores
from v4model.ops.precision import wide
from v4model.ops.rope import rotate

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    def forward(indexer: Indexer, inputs: Inputs, *, context: PackContext, where: str) -> Picked:
        keys = indexer.compressor(inputs.halo, context=context, where=where)
        rotation = context.rotation(inputs.x.shape[0], compressed=True)
        x, q_latent = inputs.x.detach(), inputs.q_latent.detach()
        q = rotate(indexer.q_b_proj(q_latent).unflatten(1, (indexer.heads, indexer.width)), rotation)
        gate = wide(indexer.weights_proj(x)) * (indexer.heads * indexer.width) ** -0.5
        picks = indexer._choose(q, gate, keys, context=context)
        return Picked(picks, index_scores(q, gate, keys, rows=picks))

    return replaced(subject, Indexer, "forward", forward)


FAULT = Fault(
    name="C12b",
    title="the KL term teaches the layers below through the indexer's keys",
    reference="no public report",
    expected="kl_reaches_only_the_indexer",
    kinds=("all", "csa"),
    apply=_apply,
)
