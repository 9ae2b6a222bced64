"""HCA: the sliding window and every complete window of the sample so far (2.3.2)."""

from __future__ import annotations

import torch
from torch import Tensor

from v4model.config import V4Config
from v4model.layers.attention.base import Attention, Pooled
from v4model.layers.compressor import Compressor
from v4model.layers.context import PackContext


class HCAAttention(Attention):
    """Heavily compressed attention: non-overlapping windows, no indexer."""

    def __init__(self, config: V4Config, *, ratio: int, dtype: torch.dtype) -> None:
        super().__init__(config, ratio=ratio, dtype=dtype)
        self.compressor = Compressor(config, ratio=ratio, width=self.width, dtype=dtype)

    def pooled(self, x: Tensor, q_latent: Tensor, *, context: PackContext) -> Pooled:  # noqa: ARG002 - CSA's input
        return Pooled(self.compressor(x, context=context), None)
