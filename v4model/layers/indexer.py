"""Indexer: which pooled rows a CSA query attends to (eq. 13-17), and what it learns from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from v4model.config import V4Config
from v4model.layers.compressor import Compressor
from v4model.layers.context import Inputs, PackContext
from v4model.layers.projections import Projection
from v4model.ops.blocks import blocks_of, recomputed
from v4model.ops.pick import index_scores, pick_rows
from v4model.ops.precision import wide
from v4model.ops.rope import rotate
from v4model.ops.twins import has_fast_twin, runs_fast
from v4model.pack.visibility import PoolVisibility


@dataclass(frozen=True, eq=False)
class Picked:
    """picks [T, k]: pooled rows, -1 where none; scores [T, k]: theirs, with gradient, -inf where none.

    Where nothing learns from them, scores are -inf everywhere.
    """

    picks: Tensor
    scores: Tensor


class Indexer(nn.Module):
    """Scores the pooled rows a query may see with small heads of its own and keeps the best `index_topk`."""

    def __init__(self, config: V4Config, *, ratio: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads, self.width, self.topk = (config.index_n_heads, config.index_head_dim, config.index_topk)
        self.ratio, self.block_tokens = ratio, config.attention_block_tokens
        self.learns = config.index_kl_coef > 0
        self.compressor = Compressor(config, ratio=ratio, width=self.width, dtype=dtype)
        self.q_b_proj = Projection(config.q_lora_rank, self.heads * self.width, dtype=dtype)
        self.weights_proj = Projection(config.hidden_size, self.heads, dtype=dtype)

    def forward(self, inputs: Inputs, *, context: PackContext, where: str) -> Picked:
        """All inputs are detached: only the KL term teaches the indexer."""
        if not self.learns:
            with torch.no_grad():
                picks = self._choose(*self._heads(inputs, context=context, where=where), context=context)
            return Picked(picks, torch.full((), float("-inf"), device=picks.device).expand(picks.shape))
        q, gate, keys = self._heads(inputs, context=context, where=where)
        picks = self._choose(q, gate, keys, context=context)
        if runs_fast(q):
            # Nothing is kept of it but its arguments: to compute it again would save no memory.
            return Picked(picks, index_scores(q, gate, keys, rows=picks))
        scores = [
            recomputed(_scores, q, gate, picks, keys, when=context.recompute_within)
            for _, (q, gate, picks) in blocks_of(q, gate, picks)
        ]
        return Picked(picks, torch.cat(scores))

    def _heads(self, inputs: Inputs, *, context: PackContext, where: str) -> tuple[Tensor, Tensor, Tensor]:
        """q [T, h, c], the gate of each head [T, h] and keys [W, c]."""
        x, q_latent = inputs.x.detach(), inputs.q_latent.detach()
        keys = self.compressor(inputs.halo.detach(), context=context, where=where)
        rotation = context.rotation(x.shape[0], compressed=True)
        q = rotate(self.q_b_proj(q_latent).unflatten(1, (self.heads, self.width)), rotation)
        return q, wide(self.weights_proj(x)) * (self.heads * self.width) ** -0.5, keys

    def _choose(self, q: Tensor, gate: Tensor, keys: Tensor, *, context: PackContext) -> Tensor:
        visible = context.visibility.pools[self.ratio]
        with torch.no_grad():
            return choose_rows(q, gate, keys, visible=visible, topk=self.topk, block_tokens=self.block_tokens)


@has_fast_twin("pick")
def choose_rows(
    q: Tensor, gate: Tensor, keys: Tensor, *, visible: PoolVisibility, topk: int, block_tokens: int
) -> Tensor:
    """The best `topk` of the pooled rows that each query may see [T, topk], as `pick_rows`; blocks bound the memory.

    Args:
        q: [T, h, c]; gate: [T, h]; keys: [W, c] of the whole pack.
    """
    blocks = []
    for start in range(0, q.shape[0], block_tokens):
        part = slice(start, start + block_tokens)
        rows = visible.rows(start, min(part.stop, q.shape[0]))
        scores = index_scores(q[part], gate[part], keys, rows=rows)
        blocks.append(pick_rows(scores, rows=rows, topk=topk))
    return torch.cat(blocks)


def _scores(q: Tensor, gate: Tensor, picks: Tensor, keys: Tensor) -> Tensor:
    return index_scores(q, gate, keys, rows=picks)
