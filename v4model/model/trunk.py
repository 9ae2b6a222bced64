"""Trunk: embedding copied into K streams, the layers, the final collapse and norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from v4model.config import V4Config
from v4model.layers.context import PackContext
from v4model.layers.hyper import HyperHead
from v4model.layers.projections import RMSNorm
from v4model.model.block import Block, BlockOutput
from v4model.model.embedding import Embedding


class Trunk(nn.Module):
    """The main model without its LM head."""

    def __init__(self, config: V4Config, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.num_streams = config.hc_mult
        self.embed_tokens = Embedding(config, dtype=dtype)
        self.layers = nn.ModuleList(
            Block(config, layer=layer, dtype=dtype)
            for layer in range(config.num_hidden_layers)
        )
        self.hc_head = HyperHead(config, dtype=dtype)
        self.norm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps, dtype=dtype)

    def forward(
        self, embeddings: Tensor, *, context: PackContext
    ) -> tuple[Tensor, list[BlockOutput]]:
        """embeddings [T, D] -> hidden [T, D] for the LM head, and each layer's output (the last feeds MTP)."""
        streams = embeddings[:, None, :].expand(-1, self.num_streams, -1)
        outputs: list[BlockOutput] = []
        for layer in self.layers:
            outputs.append(layer(streams, counted=context.sample >= 0, context=context))
            streams = outputs[-1].streams
        return self.norm(self.hc_head(streams)), outputs
