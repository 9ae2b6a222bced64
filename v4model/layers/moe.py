"""MoE: router, routed experts and the shared expert (section 2.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from v4model.config import V4Config
from v4model.layers.context import PackContext
from v4model.layers.experts import Experts, SharedExpert
from v4model.layers.router import HashRouter, LearnedRouter, RouterStatistics, Routing
from v4model.layers.share import Share


class MoE(nn.Module):
    """x [T, D] -> [T, D], with the learned router's statistics (hash layers have none)."""

    def __init__(self, config: V4Config, *, layer: int, share: Share, dtype: torch.dtype) -> None:
        super().__init__()
        self.gate: LearnedRouter | HashRouter
        if layer < config.num_hash_layers:
            self.gate = HashRouter(config, dtype=dtype)
        else:
            self.gate = LearnedRouter(config, layer=layer, dtype=dtype)
        self.experts = Experts(config, name=f"{config.block_name(layer)}.mlp.experts", share=share, dtype=dtype)
        self.shared_experts = SharedExpert(config, dtype=dtype)

    def forward(self, x: Tensor, *, counted: Tensor, context: PackContext) -> tuple[Tensor, RouterStatistics | None]:
        """`counted` [T] bool: the tokens that router statistics are made of."""
        routing: Routing
        if isinstance(self.gate, HashRouter):
            routing, statistics = self.gate(x, tokens=context.tokens), None
        else:
            routing = self.gate(x)
            statistics = self.gate.statistics(routing, counted=counted, context=context)
        routed = self.experts(x, routing, ranks=context.ranks.ep, recompute=context.recompute_within)
        return routed + self.shared_experts(x), statistics
