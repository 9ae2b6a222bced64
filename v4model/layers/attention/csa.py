"""CSA: the sliding window and the windows its indexer picks (2.3.1)."""

from __future__ import annotations

import torch
from torch import Tensor

from v4model.config import V4Config
from v4model.layers.attention.base import Attention, Pooled
from v4model.layers.compressor import Compressor
from v4model.layers.context import PackContext
from v4model.layers.indexer import Indexer


class CSAAttention(Attention):
    """Compressed sparse attention: overlapping windows of 4, at most `index_topk` of them a query."""

    def __init__(self, config: V4Config, *, ratio: int, dtype: torch.dtype) -> None:
        super().__init__(config, ratio=ratio, dtype=dtype)
        self.compressor = Compressor(config, ratio=ratio, width=self.width, dtype=dtype)
        self.indexer = Indexer(config, ratio=ratio, dtype=dtype)

    def pooled(self, x: Tensor, q_latent: Tensor, *, context: PackContext) -> Pooled:
        return Pooled(self.compressor(x, context=context), self.indexer(x, q_latent, context=context))
