"""A template for trees of the Megatron kind (Megatron-LM, Primus): a model with GPTModel's forward, told its pack by
`packed_seq_params`. Copy `OfMegatronV4` and change what it names.

    class Mine(MegatronStyle):
        name = "my tree"
        unsupported = {**WITHOUT_MTP, ...}

        def build(self): ...        # the model, with weights drawn from self.seed or taken from self.origin
        def table(self): ...        # the module that looks embeddings up

    harness check-subject mine:Mine

Letters: T tokens of the pack, V vocabulary, D hidden size.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from harness.subjects.peer import UNSUPPORTED, Peer, embedded
from v4model import PackLayout, V4Config, hf

WITHOUT_MTP = {**UNSUPPORTED, "mtp": "GPTModel's forward gives the trunk's logits; see `heads`"}


class MegatronStyle(Peer):
    """Logits [1, T, V] of forward(input_ids, position_ids, attention_mask, packed_seq_params=...)."""

    unsupported = WITHOUT_MTP
    rolls: ModuleType | None = None
    """The module whose `roll_tensor` moves ids for MTP, if the tree has MTP: embeddings then move with the ids."""

    def __init__(self, config: V4Config, dtype: torch.dtype, seed: int) -> None:
        super().__init__(config, dtype, seed)
        self.model = self.build()

    @abstractmethod
    def build(self) -> nn.Module:
        """The model, for `self.config`, `self.dtype` and `self.seed`, in evaluation of everything but dropout."""

    def values(self, layout: PackLayout, ids: Tensor, embeddings: Tensor) -> Sequence[Tensor]:
        """[T, V] of the trunk, and of what `heads` adds."""
        row: dict[str, Any] = {"input_ids": ids[None], "position_ids": layout.position[None], "attention_mask": None}
        with embedded(self.table, embeddings, rolls=self.rolls):
            logits: Tensor = self.model(**row, packed_seq_params=packed_seq_params(layout))
            return [logits[0], *self.heads(layout, ids)]

    def heads(self, layout: PackLayout, ids: Tensor) -> Sequence[Tensor]:  # noqa: ARG002
        """[T, V] of each MTP depth, where a tree can be made to give them (what its output layer is called with)."""
        return ()


class OfMegatronV4(MegatronStyle):
    """This repository's own model behind that signature: what the template was tried on."""

    name = "MegatronV4, by packed_seq_params"

    @property
    def table(self) -> nn.Module:
        """Its embedding."""
        table: nn.Module = self.model.v4.trunk.embed_tokens
        return table

    def build(self) -> nn.Module:
        """With the weights that v4model has for the seed."""
        from v4model.parallel.megatron import MegatronV4

        model = MegatronV4(self.config, dtype=self.dtype)
        hf.load(model.v4, hf.export(self.origin))
        return model


def packed_seq_params(layout: PackLayout) -> Any:
    """megatron-core's description of a pack: real ends, and the slots that the samples lie in."""
    from v4model.parallel.megatron import PackedSeqParams

    real = torch.tensor([0, *layout.lengths]).cumsum(0).int()
    slots = torch.tensor([*layout.starts, layout.total]).int()
    return PackedSeqParams(
        qkv_format="thd",
        cu_seqlens_q=real,
        cu_seqlens_kv=real,
        cu_seqlens_q_padded=slots,
        cu_seqlens_kv_padded=slots,
        max_seqlen_q=max(layout.lengths),
        max_seqlen_kv=max(layout.lengths),
    )
