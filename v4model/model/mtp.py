"""MTP: one block a depth, on the K streams of the depth before (spec: depth k at t predicts token t + k + 1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from v4model.config import V4Config
from v4model.layers.context import PackContext
from v4model.layers.hyper import HyperHead
from v4model.layers.projections import Projection, RMSNorm
from v4model.layers.share import Share
from v4model.model.block import Block, BlockOutput
from v4model.ops.blocks import by_blocks, recomputed
from v4model.ops.pool import gather_rows


class MTPDepth(nn.Module):
    """Depth `depth` (1-based): joins the embedding of token t + depth to every stream, then one full block."""

    def __init__(self, config: V4Config, *, depth: int, share: Share, dtype: torch.dtype) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.depth = depth
        self.enorm = RMSNorm(hidden, eps=eps, dtype=dtype)
        self.hnorm = RMSNorm(hidden, eps=eps, dtype=dtype)
        self.e_proj = Projection(hidden, hidden, dtype=dtype)
        self.h_proj = Projection(hidden, hidden, dtype=dtype)
        self.block = Block(config, layer=config.num_hidden_layers + depth - 1, share=share, dtype=dtype)
        self.hc_head = HyperHead(config, dtype=dtype)
        self.norm = RMSNorm(hidden, eps=eps, dtype=dtype)

    def forward(self, streams: Tensor, embeddings: Tensor, *, context: PackContext) -> tuple[Tensor, BlockOutput]:
        """streams [n, K, D] of the depth before, embeddings [n + h, D] with those ahead -> hidden [n, D], block output.

        A position whose token t + depth lies outside its sample embeds 0; it is computed, but counts nowhere and no
        valid position sees it, since it lies behind them all.
        """
        source = context.ahead(self.depth)
        ahead = recomputed(self._ahead, gather_rows(embeddings, source), when=context.recompute)
        (streams,) = by_blocks(self._joined, ahead, streams, recompute=context.recompute)
        out = self.block(streams, counted=source >= 0, context=context)
        (hidden,) = by_blocks(self._left, out.streams, recompute=context.recompute)
        return hidden, out

    def _ahead(self, embeddings: Tensor) -> Tensor:
        ahead: Tensor = self.e_proj(self.enorm(embeddings))
        return ahead

    def _joined(self, ahead: Tensor, streams: Tensor) -> tuple[Tensor]:
        return (ahead[:, None, :] + self.h_proj(self.hnorm(streams)),)

    def _left(self, streams: Tensor) -> tuple[Tensor]:
        return (self.norm(self.hc_head(streams)),)
