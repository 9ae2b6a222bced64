"""megatron-core's packed pieces in a V4: its `roll_tensor` moves what MTP reads and predicts, by its PackedSeqParams.

megatron-core has no DeepSeek-V4. What it offers to one is the shift of ids, labels and loss mask by one token a depth
inside the samples of a pack; the rest of this subject is `v4model`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import torch
from torch import Tensor

from harness.subjects.peer_megatron_style import packed_seq_params
from harness.subjects.protocol import Observation
from harness.subjects.v4model_one_rank import V4OneRank, lively_model
from v4model import Pack, PackLayout, V4Config
from v4model.layers.context import PackContext
from v4model.model import model as model_module
from v4model.model.head import LMHead
from v4model.model.loss import HeadLoss, head_loss


class RollTensor(V4OneRank):
    """The model of this repository, with MTP shifted by megatron-core."""

    def observe(self, pack: Pack, *, embeddings: Tensor | None = None) -> Observation:
        """One forward; each depth's labels are rolled from the trunk's, which the data gives."""
        with _shifted(pack.layout, depths=self.config.num_nextn_predict_layers):
            seen = super().observe(pack, embeddings=embeddings)
        # Nobody is trained on a position that has nothing to read ahead: what stands there is left open.
        said = [pack.layout.ahead(depth)[:, None] >= 0 for depth in range(len(seen.depths))]
        depths = [
            replace(one, values=torch.where(own, one.values, 0)) for own, one in zip(said, seen.depths, strict=True)
        ]
        return replace(seen, depths=tuple(depths))


def build(config: V4Config, dtype: torch.dtype, seed: int) -> RollTensor:
    """The subject, with the weights that v4model has for the same arguments."""
    return RollTensor(lively_model(config, dtype, seed), seed, name="megatron-core, roll_tensor")


def rolled(layout: PackLayout, *, times: int) -> list[Tensor]:
    """For 0 to `times` rolls, [T] the token that stands at each place, -1 where a roll cleared it or padding is."""
    # Imported here: it takes seconds, and only v4model.parallel.megatron imports it quietly.
    from v4model.parallel.megatron import roll_tensor

    params = packed_seq_params(layout)
    found = [1 + torch.arange(layout.total)[None]]
    for _ in range(times):
        found.append(roll_tensor(found[-1], shifts=-1, dims=-1, cp_group=None, packed_seq_params=params)[0])
    sources = [one[0] - 1 for one in found]
    real = layout.real
    # A padding token has no embedding and is no label, whoever reads it.
    return [torch.where(real & (source >= 0) & real[source], source, -1) for source in sources]


@contextmanager
def _shifted(layout: PackLayout, *, depths: int) -> Iterator[None]:
    """Within, depth k reads and predicts what k rolls bring to its place."""
    read = rolled(layout, times=depths)
    own_ahead = PackContext.ahead
    is_label = False

    def ahead(context: PackContext, steps: int) -> Tensor:
        if not is_label:
            return read[steps]
        source = read[steps - 1]
        return torch.where(source >= 0, own_ahead(context, 1)[source], -1)

    def loss(hidden: Tensor, *, head: LMHead, steps: int, context: PackContext) -> HeadLoss:
        nonlocal is_label
        is_label = True
        try:
            return head_loss(hidden, head=head, steps=steps, context=context)
        finally:
            is_label = False

    with mock.patch.object(PackContext, "ahead", ahead), mock.patch.object(model_module, "head_loss", loss):
        yield
