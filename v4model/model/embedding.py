"""Token embedding; padding embeds as 0 whatever its token id."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from v4model.config import V4Config
from v4model.layers.context import PackContext


class Embedding(nn.Module):
    """token ids [T] -> [T, D]."""

    def __init__(self, config: V4Config, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.vocab_size, config.hidden_size, dtype=dtype))

    def forward(self, context: PackContext) -> Tensor:
        return at_real_tokens(F.embedding(context.tokens, self.weight), context=context)


def at_real_tokens(embeddings: Tensor, *, context: PackContext) -> Tensor:
    """Embeddings [T, D] with those of padding replaced by 0; no value and no gradient passes there."""
    return torch.where((context.sample >= 0)[:, None], embeddings, 0)
