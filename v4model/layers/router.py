"""Routers: learned with a selection-only bias, and the fixed table of the hash layers (section 2.1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from v4model.config import V4Config
from v4model.layers.context import PackContext
from v4model.ops.precision import wide, wide_dtype
from v4model.ops.route import affinities, balance_loss, choose_experts, count_selections, expert_weights, sum_shares


@dataclass(frozen=True, eq=False)
class Routing:
    """experts [T, k], weights [T, k], affinity [T, E] (float32 or better)."""

    experts: Tensor
    weights: Tensor
    affinity: Tensor


@dataclass(frozen=True, eq=False)
class RouterStatistics:
    """Of one learned router, over all ranks: sum over samples of len_s * L_s, its token count, selections [E]."""

    balance_sum: Tensor
    tokens: Tensor
    counts: Tensor


class Router(nn.Module):
    """The gate of both routers; weight [E, D] in float32 or better."""

    def __init__(self, config: V4Config, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.num_experts, self.top_k = (config.n_routed_experts, config.num_experts_per_tok)
        self.scaling = config.routed_scaling_factor
        self.weight = nn.Parameter(torch.empty(self.num_experts, config.hidden_size, dtype=wide_dtype(dtype)))

    def affinity(self, x: Tensor) -> Tensor:
        """x [T, D] -> [T, E]."""
        return affinities(F.linear(wide(x), self.weight))

    def weigh(self, affinity: Tensor, experts: Tensor) -> Routing:
        """The routing to `experts` [T, k]."""
        return Routing(experts, expert_weights(affinity, experts, scaling=self.scaling), affinity)


class LearnedRouter(Router):
    """Top-k of affinity + bias; the bias is a buffer that `LearnedRouter.rebalance` moves."""

    e_score_correction_bias: Tensor

    def __init__(self, config: V4Config, *, layer: int, dtype: torch.dtype) -> None:
        super().__init__(config, dtype=dtype)
        self.name = f"{config.block_name(layer)}.mlp.gate"
        self.rate = config.router_bias_rate
        self.register_buffer("e_score_correction_bias", torch.empty(self.num_experts, dtype=wide_dtype(dtype)))

    def forward(self, x: Tensor) -> Routing:
        affinity = self.affinity(x)
        return self.weigh(affinity, choose_experts(affinity, bias=self.e_score_correction_bias, top_k=self.top_k))

    def statistics(self, routing: Routing, *, counted: Tensor, context: PackContext) -> RouterStatistics:
        """Over the tokens where `counted` [T] is true: never padding, and at MTP depths valid positions only."""
        sample, num_samples = (torch.where(counted, context.sample, -1), context.layout.num_samples)
        counts = count_selections(routing.experts, num_experts=self.num_experts, sample=sample, num_samples=num_samples)
        shares = sum_shares(routing.affinity, sample=sample, num_samples=num_samples)
        counts = context.ranks.cp.total(counts, where=self.name)
        shares = context.ranks.cp.total(shares, where=self.name)
        of_experts = counts.sum(0)
        return RouterStatistics(
            balance_loss(shares, counts, top_k=self.top_k), of_experts.sum() // self.top_k, of_experts
        )

    @torch.no_grad()
    def rebalance(self, counts: Tensor) -> None:
        """Moves the bias by rate * sign(mean count - count) for the counts [E] of a step."""
        counts = counts.to(self.e_score_correction_bias.dtype)
        self.e_score_correction_bias += self.rate * torch.sign(counts.mean() - counts)


class HashRouter(Router):
    """Experts by a fixed table [V, k] over token ids; the gate still weighs them."""

    tid2eid: Tensor

    def __init__(self, config: V4Config, *, dtype: torch.dtype) -> None:
        super().__init__(config, dtype=dtype)
        self.register_buffer("tid2eid", torch.empty(config.vocab_size, self.top_k, dtype=torch.int64))

    def forward(self, x: Tensor, *, tokens: Tensor) -> Routing:
        return self.weigh(self.affinity(x), self.tid2eid[tokens])
