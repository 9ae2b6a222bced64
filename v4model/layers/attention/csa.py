"""CSA: the sliding window and the windows its indexer picks (2.3.1)."""

from __future__ import annotations

import torch

from v4model.config import V4Config
from v4model.layers.attention.base import Attention, Pooled
from v4model.layers.compressor import Compressor
from v4model.layers.context import Inputs, PackContext
from v4model.layers.indexer import Indexer
from v4model.ops.edge import with_edges


class CSAAttention(Attention):
    """Compressed sparse attention: overlapping windows of 4, at most `index_topk` of them a query."""

    def __init__(self, config: V4Config, *, layer: int, dtype: torch.dtype) -> None:
        super().__init__(config, layer=layer, dtype=dtype)
        self.compressor = Compressor(config, ratio=self.ratio, width=self.width, dtype=dtype)
        self.indexer = Indexer(config, ratio=self.ratio, dtype=dtype)

    def pooled(self, inputs: Inputs, *, context: PackContext) -> Pooled:
        rows = self.compressor(inputs.halo, context=context, where=f"{self.name}.compressor")
        picked = self.indexer(inputs, context=context, where=f"{self.name}.indexer")
        if not self.indexer.learns:
            rows = with_edges(rows, *self.indexer.parameters())
        return Pooled(rows, picked)
