"""What all attention kinds share: projections, RoPE, the joint softmax and the grouped output (section 2.3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from v4model.config import V4Config
from v4model.layers.context import Inputs, PackContext
from v4model.layers.indexer import Picked
from v4model.layers.projections import GroupedProjection, Projection, RMSNorm
from v4model.ops.attend import attend
from v4model.ops.blocks import blocks_of, recomputed
from v4model.ops.norm import rms_norm
from v4model.ops.pick import picks_divergence
from v4model.ops.precision import wide_dtype
from v4model.ops.rope import rotate
from v4model.pack.visibility import Visibility


@dataclass(frozen=True, eq=False)
class Attended:
    """out [T, D]; kl: the indexer's divergence summed over queries, None for kinds without an indexer."""

    out: Tensor
    kl: Tensor | None


@dataclass(frozen=True, eq=False)
class Pooled:
    """rows [W, d] beside the local latents; picked: the indexer's choice, None when all visible rows are read."""

    rows: Tensor
    picked: Picked | None


@dataclass(frozen=True, eq=False)
class _Keys:
    """What queries read: kv [N, d] of the tokens from `first` on, pool [W, d] of the whole pack."""

    kv: Tensor
    pool: Tensor
    first: int


@dataclass(frozen=True, eq=False)
class _Queries:
    """What is known of a block of queries without a gradient."""

    rotation: tuple[Tensor, Tensor]
    visibility: Visibility
    first_key: int


class Attention(nn.Module):
    """Multi-query attention over one latent that is both key and value; kinds add pooled rows in `pooled`."""

    def __init__(self, config: V4Config, *, layer: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.name, self.reach, ratio = (config.block_name(layer), config.reach(layer), config.compress_ratios[layer])
        hidden, heads, width = (config.hidden_size, config.num_attention_heads, config.head_dim)
        self.ratio, self.heads, self.width, self.eps = (ratio, heads, width, config.rms_norm_eps)
        self.block_tokens = config.attention_block_tokens
        # The mass of picks is the indexer's target, and read by nothing else.
        self.wants_mass = config.index_kl_coef > 0
        self.q_a_proj = Projection(hidden, config.q_lora_rank, dtype=dtype)
        self.q_a_norm = RMSNorm(config.q_lora_rank, eps=self.eps, dtype=dtype)
        self.q_b_proj = Projection(config.q_lora_rank, heads * width, dtype=dtype)
        self.kv_proj = Projection(hidden, width, dtype=dtype)
        self.kv_norm = RMSNorm(width, eps=self.eps, dtype=dtype)
        self.sinks = nn.Parameter(torch.empty(heads, dtype=wide_dtype(dtype)))
        groups = config.o_groups
        self.o_a_proj = GroupedProjection(heads * width // groups, config.o_lora_rank, groups=groups, dtype=dtype)
        self.o_b_proj = Projection(groups * config.o_lora_rank, hidden, dtype=dtype)

    def pooled(self, inputs: Inputs, *, context: PackContext) -> Pooled:  # noqa: ARG002 - for the kinds that pool
        """The pooled rows beside the local ones; none here."""
        return Pooled(inputs.x.new_zeros(0, self.width), None)

    def forward(self, x: Tensor, *, context: PackContext) -> Attended:
        """x [n, D] of the rank's tokens, normed."""
        halo = context.ranks.cp.left_halo(x, rows=self.reach, plan=context.plan, where=self.name)
        key_rotation = context.rotation(halo.shape[0], compressed=self.ratio > 0)
        q_latent = self.q_a_norm(self.q_a_proj(x))
        kv = rotate(self.kv_norm(self.kv_proj(halo)), key_rotation)
        pooled = self.pooled(Inputs(x, halo, q_latent), context=context)
        keys = _Keys(kv, pooled.rows, first=context.plan.end - halo.shape[0])
        out, mass = self._by_blocks(
            q_latent, keys, picks=pooled.picked.picks if pooled.picked else None, context=context
        )
        kl = None
        if pooled.picked is not None and self.wants_mass:
            kl = picks_divergence(pooled.picked.scores, mass, picks=pooled.picked.picks)
        return Attended(self.o_b_proj(out), kl)

    def _by_blocks(
        self, q_latent: Tensor, keys: _Keys, *, picks: Tensor | None, context: PackContext
    ) -> tuple[Tensor, Tensor]:
        """q_latent [n, q_lora] -> grouped outputs [n, G * o_lora] and the mass of each pick [n, k]."""
        rotation = context.rotation(q_latent.shape[0], compressed=self.ratio > 0)
        outs, masses = [], []
        for start, (latent, cos, sin) in blocks_of(q_latent, *rotation):
            end = start + latent.shape[0]
            queries = _Queries((cos, sin), context.visibility.part(start, end), keys.first)
            # Picks by themselves: what is no tensor stays from the first forward pass to the end of the backward one.
            of_block = None if picks is None else picks[start:end]
            out, mass = recomputed(
                self._of_block, latent, keys.kv, keys.pool, of_block, queries, when=context.recompute_within
            )
            outs.append(out)
            masses.append(mass)
        return torch.cat(outs), torch.cat(masses)

    def _of_block(
        self, q_latent: Tensor, kv: Tensor, pool: Tensor, picks: Tensor | None, queries: _Queries
    ) -> tuple[Tensor, Tensor]:
        q = rms_norm(self.q_b_proj(q_latent).unflatten(1, (self.heads, self.width)), eps=self.eps)
        out, mass = attend(
            rotate(q, queries.rotation),
            kv,
            pool,
            self.sinks,
            visibility=queries.visibility,
            ratio=self.ratio,
            picks=picks,
            first_key=queries.first_key,
            block_tokens=self.block_tokens,
            wants_mass=self.wants_mass,
        )
        # Values were rotated by their own position; turning back by the query's leaves the distance only.
        out = rotate(out, queries.rotation, inverse=True)
        return self.o_a_proj(out.reshape(out.shape[0], self.o_a_proj.groups, -1)).flatten(1), mass
