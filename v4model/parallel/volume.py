"""How many bytes the ranks of a step send each other in its exchanges, from the configuration and the packs alone.

Context ranks send halos of hidden rows, pooled rows, and sums of router statistics and losses: exact, and held to what
`Exchange.sent_bytes` counts. How many rows travel to experts is up to the router, so that is a projection.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from v4model.config import V4Config
from v4model.pack.layout import PackLayout

_NUMBER_BYTES = 8
"""Of the int64 that counts selections and names experts."""


def context_bytes(
    config: V4Config, layouts: Iterable[PackLayout], *, ranks: int, stages: int, dtype: torch.dtype, recompute: bool
) -> int:
    """Sent over context groups of `ranks` by all ranks together, forward and backward, for these packs.

    A block sends halos and pooled rows forward and their gradients backward, sums forward only; with `recompute` it
    goes forward twice. What is outside blocks does not.
    """
    s, w = dtype.itemsize, torch.promote_types(dtype, torch.float32).itemsize
    forward = 2 if recompute else 1
    depths, pairs = config.num_nextn_predict_layers, ranks * (ranks - 1)
    total = 0
    for layout in layouts:
        size = -(-layout.total // ranks)
        starts = [rank * size for rank in range(ranks)]
        for layer, ratio in enumerate(config.compress_ratios):
            kind = config.kind(layer)
            rows = sum(length // ratio for length in layout.lengths) if ratio else 0
            width = config.head_dim + (config.index_head_dim if kind == "csa" else 0)
            halo = sum(min(config.reach(layer), start) for start in starts) * config.hidden_size
            total += (forward + 1) * (halo + (ranks - 1) * rows * width * bool(ratio)) * s
            if layer >= config.num_hash_layers:
                total += forward * pairs * layout.num_samples * config.n_routed_experts * (_NUMBER_BYTES + w)
        ahead = sum(min(depths, size * ranks - start - size) for start in starts)
        total += 2 * ahead * config.hidden_size * s
        # A loss for every head, and each stage's divergence of its indexers.
        total += pairs * (1 + depths + stages) * w
    return total


def expert_bytes_if_even(config: V4Config, *, tokens: int, ranks: int, dtype: torch.dtype, recompute: bool) -> float:
    """Projected: sent over expert groups of `ranks` for so many tokens of all packs, padding included.

    As if routers spread the choices evenly over ranks: a row and an expert's number go there and a row comes back, and
    both rows' gradients the other way. Without the eight bytes by which each rank tells each how many rows come.
    """
    forward = 2 if recompute else 1
    blocks = len(config.compress_ratios)
    away = tokens * config.num_experts_per_tok * (ranks - 1) / ranks
    return blocks * away * (2 * (forward + 1) * config.hidden_size * dtype.itemsize + forward * _NUMBER_BYTES)
