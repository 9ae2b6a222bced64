"""Block: attention and MoE, each between an mHC collapse and expand (section 2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from v4model.config import V4Config
from v4model.layers.attention import attention_of
from v4model.layers.context import PackContext
from v4model.layers.hyper import HyperConnection, expand
from v4model.layers.moe import MoE
from v4model.layers.projections import RMSNorm
from v4model.layers.router import RouterStatistics
from v4model.layers.share import Share
from v4model.ops.blocks import by_blocks, recomputed


@dataclass(frozen=True, eq=False)
class BlockOutput:
    """streams [T, K, D]; the learned router's statistics; the indexer's summed divergence."""

    streams: Tensor
    router: RouterStatistics | None
    kl: Tensor | None


class Block(nn.Module):
    """Trunk layer `layer`, or MTP block `layer - num_hidden_layers` (always with a learned router)."""

    def __init__(self, config: V4Config, *, layer: int, share: Share, dtype: torch.dtype) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.attn_hc = HyperConnection(config, dtype=dtype)
        self.input_layernorm = RMSNorm(hidden, eps=eps, dtype=dtype)
        self.self_attn = attention_of(config, layer=layer, dtype=dtype)
        self.ffn_hc = HyperConnection(config, dtype=dtype)
        self.post_attention_layernorm = RMSNorm(hidden, eps=eps, dtype=dtype)
        self.mlp = MoE(config, layer=layer, share=share, dtype=dtype)

    def forward(self, streams: Tensor, *, counted: Tensor, context: PackContext) -> BlockOutput:
        """streams [T, K, D]; counted [T] bool: tokens that router statistics are made of."""

        def run(streams: Tensor) -> BlockOutput:
            return self._run(streams, counted=counted, context=context)

        return recomputed(run, streams, when=context.recompute)

    def _run(self, streams: Tensor, *, counted: Tensor, context: PackContext) -> BlockOutput:
        x, post, comb = self.attn_hc(streams, recompute=context.recompute_within)
        attended = self.self_attn(self.input_layernorm(x), context=context)
        streams = _expanded(streams, attended.out, post, comb, context=context)
        x, post, comb = self.ffn_hc(streams, recompute=context.recompute_within)
        out, router = self.mlp(self.post_attention_layernorm(x), counted=counted, context=context)
        return BlockOutput(_expanded(streams, out, post, comb, context=context), router, attended.kl)


def _expanded(streams: Tensor, out: Tensor, post: Tensor, comb: Tensor, *, context: PackContext) -> Tensor:
    def of_block(streams: Tensor, out: Tensor, post: Tensor, comb: Tensor) -> tuple[Tensor]:
        return (expand(streams, out, post=post, comb=comb),)

    return by_blocks(of_block, streams, out, post, comb, recompute=context.recompute_within)[0]
