"""One block of the NumPy reading, the entry of an MTP depth, and the notes that blocks leave behind.

Letters: T tokens of one sample, K residual streams, D hidden width, E experts, k experts per token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.subjects.numpy_reading_attention import attend
from harness.subjects.numpy_reading_layers import (
    Bools,
    Floats,
    Ints,
    ReadingConfig,
    Routing,
    Weights,
    balance_sum,
    below,
    collapse,
    expand,
    hyper_coefficients,
    mixture,
    rms_norm,
    selection_counts,
)


@dataclass
class BlockNotes:
    """Collects what the blocks did, by block name, while a reading is under way."""

    balance_sums: dict[str, float] = field(default_factory=dict)
    balance_lengths: dict[str, int] = field(default_factory=dict)
    kl: dict[str, Floats] = field(default_factory=dict)
    router_counts: dict[str, Ints] = field(default_factory=dict)
    experts: dict[str, Ints] = field(default_factory=dict)
    picks: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    parts: dict[str, Floats] = field(default_factory=dict)

    def note_routing(self, name: str, *, routing: Routing, valid: Bools) -> None:
        self.experts[name] = routing.chosen
        if routing.learned:
            self.router_counts[name] = selection_counts(routing, valid=valid)
            self.balance_sums[name] = balance_sum(routing, valid=valid)
            self.balance_lengths[name] = int(valid.sum())

    def balance_mean(self) -> float:
        """sum over blocks of len * L / len; the denominator is the block's own, and a block without tokens adds 0."""
        lengths = self.balance_lengths
        return sum(total / lengths[name] for name, total in self.balance_sums.items() if lengths[name])


def run_block(
    streams: Floats,
    *,
    tokens: Sequence[int],
    valid: Bools,
    weights: Weights,
    config: ReadingConfig,
    layer: int,
    notes: BlockNotes,
) -> Floats:
    """One block on streams [T, K, D]; `layer` counts the trunk's blocks, then the MTP ones."""
    trunk = layer < config.num_hidden_layers
    name = f"model.layers.{layer}" if trunk else f"mtp.{layer - config.num_hidden_layers}"
    block, eps = below(weights, name), config.rms_norm_eps

    pre, post, comb = hyper_coefficients(streams, weights=below(block, "attn_hc"), config=config)
    collapsed = collapse(streams, pre=pre)
    x = rms_norm(collapsed, weight=block["input_layernorm.weight"], eps=eps)
    attended = attend(x, weights=below(block, "self_attn"), config=config, ratio=config.compress_ratios[layer])
    streams = expand(streams, out=attended.out, post=post, comb=comb)
    notes.parts |= {f"{name}.attn_hc": collapsed, f"{name}.self_attn.compressor": attended.pool}
    notes.parts |= {f"{name}.self_attn": attended.out, f"{name}.attn_hc.streams": streams}
    if attended.picks is not None and attended.divergence is not None:
        notes.picks[name], notes.kl[name] = attended.picks, attended.divergence

    pre, post, comb = hyper_coefficients(streams, weights=below(block, "ffn_hc"), config=config)
    collapsed = collapse(streams, pre=pre)
    x = rms_norm(collapsed, weight=block["post_attention_layernorm.weight"], eps=eps)
    hashed = trunk and layer < config.num_hash_layers
    out, routing = mixture(x, tokens=tokens, weights=below(block, "mlp"), config=config, hashed=hashed)
    notes.note_routing(name, routing=routing, valid=valid)
    streams = expand(streams, out=out, post=post, comb=comb)
    notes.parts |= {f"{name}.ffn_hc": collapsed, f"{name}.mlp": out, f"{name}.ffn_hc.streams": streams}
    return streams


def mtp_input(embedded: Floats, *, streams: Floats, weights: Weights, depth: int, eps: float) -> Floats:
    """Entry of depth k, [T, K, D]: e_proj(enorm(embedding of token t+k)) on every stream + h_proj(hnorm(stream)).

    `embedded` [T, D] are the sample's embeddings; a position with no token t+k gets 0. `streams` are the output of the
    previous depth's block, before its own HyperHead.
    """
    ahead = embeddings_ahead(embedded, depth=depth)
    token_part = rms_norm(ahead, weight=weights["enorm.weight"], eps=eps) @ weights["e_proj.weight"].T
    stream_part = rms_norm(streams, weight=weights["hnorm.weight"], eps=eps) @ weights["h_proj.weight"].T
    return np.asarray(token_part[:, None, :] + stream_part)


def embeddings_ahead(embedded: Floats, *, depth: int) -> Floats:
    """[T, D]: the embedding of token t + depth at position t, 0 where the sample has none."""
    ahead = np.zeros_like(embedded)
    for t in range(len(embedded) - depth):
        ahead[t] = embedded[t + depth]
    return ahead
