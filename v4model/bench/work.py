"""Operations that a step must do, counted from a configuration and a layout; nothing is measured here.

Only matrix products count, as is usual where a share of a machine's peak is told: a multiply and an add are two. A
backward pass counts twice its forward pass, attention's 2.5 times (its scores are computed again).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from v4model.config import CSA_RATIO, V4Config
from v4model.pack.layout import PackLayout
from v4model.pack.visibility import visibility_of


@dataclass(frozen=True)
class Work:
    """Operations of a forward and backward pass: linear layers and head, attention, the indexer (forward only)."""

    linear: float
    attention: float
    indexer: float

    @property
    def total(self) -> float:
        return self.linear + self.attention + self.indexer


def work_of(config: V4Config, layout: PackLayout) -> Work:
    """Of a step on one pack, heads of MTP depths included. Tokens of padding count: they are computed too."""
    layers = len(config.compress_ratios)
    per_token = sum(_linear(config, layer) for layer in range(layers))
    depths = config.num_nextn_predict_layers
    hidden = config.hidden_size
    # Each depth joins an embedding and a stream by two square matrices, the latter for every stream.
    per_token += depths * hidden * hidden * (1 + config.hc_mult) + (1 + depths) * hidden * config.vocab_size
    attention = indexer = 0.0
    for ratio in config.compress_ratios:
        keys, visible = keys_read(config, layout, ratio=ratio)
        attention += attention_forward(config, keys=keys) * 3.5
        if ratio == CSA_RATIO:
            # Forward only: where the indexer learns, it does so from the rows it picked, a small part of these.
            indexer += 2.0 * config.index_n_heads * config.index_head_dim * visible
    return Work(6.0 * per_token * layout.total, attention, indexer)


def attention_forward(config: V4Config, *, keys: int) -> float:
    """Operations of one layer's forward attention over `keys` pairs of a query and a key: scores and their values."""
    return 4.0 * config.num_attention_heads * config.head_dim * keys


def keys_read(config: V4Config, layout: PackLayout, *, ratio: int) -> tuple[int, int]:
    """Pairs of a query and a key it reads in a layer of `ratio`, and pairs of a query and a pooled row it may see."""
    visibility = visibility_of(layout, window=config.sliding_window, ratios=config.ratios)
    local = int((torch.arange(layout.total) - visibility.local_lo + 1).sum())
    if not ratio:
        return local, 0
    visible = visibility.pools[ratio].visible
    read = visible.clamp(max=config.index_topk) if ratio == CSA_RATIO else visible
    return local + int(read.sum()), int(visible.sum())


def _linear(config: V4Config, layer: int) -> int:
    """Multiplications of a token with the weights of one block: chosen experts only."""
    hidden, heads, width = config.hidden_size, config.num_attention_heads, config.head_dim
    latent = config.q_lora_rank
    ratio = config.compress_ratios[layer]
    attention = hidden * latent + latent * heads * width + hidden * width
    attention += heads * width * config.o_lora_rank + config.o_groups * config.o_lora_rank * hidden
    if ratio:
        attention += 2 * hidden * width * (2 if ratio == CSA_RATIO else 1)
    experts = (config.num_experts_per_tok + 1) * 3 * hidden * config.moe_intermediate_size
    return attention + experts + hidden * config.n_routed_experts
