"""LM head, shared by the trunk and every MTP depth."""

from __future__ import annotations

import torch
from torch import Tensor

from v4model.config import V4Config
from v4model.layers.projections import Projection
from v4model.ops.ce import linear_cross_entropy


class LMHead(Projection):
    """hidden [T, D] -> logits [T, V], or the cross entropy without ever holding them all."""

    def __init__(self, config: V4Config, *, dtype: torch.dtype) -> None:
        super().__init__(config.hidden_size, config.vocab_size, dtype=dtype)
        self.chunk_tokens = config.loss_chunk_tokens

    def nll(self, hidden: Tensor, *, labels: Tensor) -> Tensor:
        """[T] negative log likelihood of `labels` [T], 0 where a label is -1."""
        return linear_cross_entropy(hidden, self.weight, labels=labels, chunk_tokens=self.chunk_tokens)
