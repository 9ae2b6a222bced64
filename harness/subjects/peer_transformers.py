"""transformers' DeepseekV4ForCausalLM as a subject: one sample at a time, a padded batch, or packed by position_ids.

Its experts run as `batched_mm`, whose shapes do not depend on routing, so that bits can be compared; its float32
islands are lifted to float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from harness.subjects.adapter import at_tokens
from harness.subjects.peer import UNSUPPORTED, OneRow, Peer, embedded, positions
from harness.subjects.transformers import TransformersReference
from v4model import PackLayout, V4Config

_UNSUPPORTED = {**UNSUPPORTED, "mtp": "the model has no MTP"}


class _TransformersPeer(Peer):
    """What the three ways to take samples share."""

    unsupported = _UNSUPPORTED

    def __init__(self, config: V4Config, dtype: torch.dtype, seed: int) -> None:
        super().__init__(config, dtype, seed)
        self.reference = TransformersReference(self.origin, experts="batched_mm")
        self.model = self.reference.model

    @property
    def table(self) -> nn.Module:
        """Its embedding."""
        table: nn.Module = self.reference.model.model.embed_tokens
        return table

    def logits(self, ids: Tensor, embeddings: Tensor, **inputs: Tensor) -> Tensor:
        """[B, L, V] of a batch of ids [B, L] and embeddings [B, L, D]."""
        with self.reference.in_float64(), embedded(self.table, embeddings.flatten(0, 1)):
            found: Tensor = self.reference.model(input_ids=ids, **inputs).logits
        return found


class OneAtATime(_TransformersPeer):
    """Each sample by itself: the reference."""

    name = "transformers, one sample at a time"

    def values(self, layout: PackLayout, ids: Tensor, embeddings: Tensor) -> Sequence[Tensor]:
        """[T, V] of the trunk."""
        own = [slice(start, start + length) for start, length in zip(layout.starts, layout.lengths, strict=True)]
        rows = [self.logits(ids[None, part], embeddings[None, part])[0] for part in own]
        return [at_tokens(torch.cat(rows), layout)]


class PaddedBatch(_TransformersPeer):
    """A row a sample, padded on the right, with the attention mask that a tokenizer makes."""

    name = "transformers, padded batch"

    def values(self, layout: PackLayout, ids: Tensor, embeddings: Tensor) -> Sequence[Tensor]:
        """[T, V] of the trunk."""
        column = torch.arange(max(layout.lengths))
        mask = torch.stack([column < length for length in layout.lengths])
        source = torch.where(mask, torch.tensor(layout.starts)[:, None] + column, 0)
        rows = torch.where(mask[..., None], embeddings[source], 0.0)
        found = self.logits(torch.where(mask, ids[source], 0), rows, attention_mask=mask.long())
        return [at_tokens(found[mask], layout)]


class ByPositions(_TransformersPeer, OneRow):
    """One row whose position_ids restart at each sample, as its padding-free collator gives it.

    It knows no padding: each stretch of it is given as one more sample.
    """

    name = "transformers, packed by position_ids"

    def values(self, layout: PackLayout, ids: Tensor, embeddings: Tensor) -> Sequence[Tensor]:
        """[T, V] of the trunk."""
        return [self.logits(ids[None], embeddings[None], position_ids=positions(layout)[None])[0]]

    def parts(self) -> Mapping[str, nn.Module]:
        """Attention and experts of each layer."""
        layers = self.reference.model.model.layers
        return {
            f"layers.{number}.{part}": getattr(layer, part)
            for number, layer in enumerate(layers)
            for part in ("self_attn", "mlp")
        }
