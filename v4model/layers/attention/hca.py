"""HCA: the sliding window and every complete window of the sample so far (2.3.2)."""

from __future__ import annotations

import torch

from v4model.config import V4Config
from v4model.layers.attention.base import Attention, Pooled
from v4model.layers.compressor import Compressor
from v4model.layers.context import Inputs, PackContext


class HCAAttention(Attention):
    """Heavily compressed attention: non-overlapping windows, no indexer."""

    def __init__(self, config: V4Config, *, layer: int, dtype: torch.dtype) -> None:
        super().__init__(config, layer=layer, dtype=dtype)
        self.compressor = Compressor(config, ratio=self.ratio, width=self.width, dtype=dtype)

    def pooled(self, inputs: Inputs, *, context: PackContext) -> Pooled:
        return Pooled(self.compressor(inputs.halo, context=context, where=f"{self.name}.compressor"), None)
