"""Trunk: embedding copied into K streams, the layers, the final collapse and norm; or one pipeline stage of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from v4model.config import V4Config
from v4model.layers.context import PackContext
from v4model.layers.hyper import HyperHead
from v4model.layers.projections import RMSNorm
from v4model.layers.share import Share
from v4model.model.block import Block, BlockOutput
from v4model.model.embedding import Embedding
from v4model.ops.blocks import by_blocks


class Trunk(nn.Module):
    """The main model without its LM head. Layers keep their number in the whole model, on every stage."""

    def __init__(self, config: V4Config, *, share: Share, dtype: torch.dtype) -> None:
        super().__init__()
        self.num_streams = config.hc_mult
        self.embeds = share.is_first or (share.is_last and config.num_nextn_predict_layers > 0)
        if self.embeds:
            self.embed_tokens = Embedding(config, dtype=dtype)
        self.layers = nn.ModuleDict(
            {str(layer): Block(config, layer=layer, share=share, dtype=dtype) for layer in share.layers(config)}
        )
        if share.is_last:
            self.hc_head = HyperHead(config, dtype=dtype)
            self.norm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps, dtype=dtype)

    def enter(self, embeddings: Tensor) -> Tensor:
        """embeddings [n, D] -> streams [n, K, D]."""
        return embeddings[:, None, :].expand(-1, self.num_streams, -1)

    def forward(self, streams: Tensor, *, context: PackContext) -> dict[int, BlockOutput]:
        """streams [n, K, D] through this stage's layers -> outputs by layer; the last one's streams go on."""
        outputs: dict[int, BlockOutput] = {}
        for layer, block in self.layers.items():
            outputs[int(layer)] = block(streams, counted=context.sample >= 0, context=context)
            streams = outputs[int(layer)].streams
        return outputs

    def leave(self, streams: Tensor, *, recompute: bool) -> Tensor:
        """streams [n, K, D] -> hidden [n, D] for the LM head."""
        return by_blocks(self._left, streams, recompute=recompute)[0]

    def _left(self, streams: Tensor) -> tuple[Tensor]:
        return (self.norm(self.hc_head(streams)),)
