"""The attention of the NumPy reading: rotary positions, compressed windows, the indexer, the joint softmax.

Letters: T tokens of one sample, W compressed windows, D hidden width, H query heads, d head width, r rotary channels,
c width of a compressor (d for the pool, index_head_dim for the indexer's keys).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from harness.subjects.numpy_reading_layers import (
    Floats,
    ReadingConfig,
    ReadingYarn,
    Weights,
    below,
    largest,
    rms_norm,
    softmax,
)

CSA_RATIO = 4  # the one ratio with overlapping windows and an indexer; any other ratio above 0 is HCA

# ---------------------------------------------------------------------------------------------------------------------
# Rotary positions
# ---------------------------------------------------------------------------------------------------------------------


def yarn_ramp(yarn: ReadingYarn, *, theta: float, channels: int) -> Floats:
    """[channels / 2]: 0 where a frequency keeps its value, 1 where it is divided by the factor, linear in between."""

    def pair_turning(rotations: float) -> float:
        length = yarn.original_max_position_embeddings
        return channels * math.log(length / (2.0 * math.pi * rotations)) / (2.0 * math.log(theta))

    low = max(math.floor(pair_turning(yarn.beta_fast)), 0)
    high = min(math.ceil(pair_turning(yarn.beta_slow)), channels - 1)
    pairs = np.arange(channels // 2, dtype=np.float64)
    if low == high:  # the formula is 0/0 here; its limit from high > low is a step just after `low`
        return np.asarray(np.where(pairs > low, 1.0, 0.0))
    return np.asarray(np.clip((pairs - low) / (high - low), 0.0, 1.0))


def inverse_frequencies(config: ReadingConfig, *, ratio: int) -> Floats:
    """[r / 2] radians a token. Dense layers: rope_theta, no YaRN. Others: compress_rope_theta, YaRN if configured."""
    channels = config.qk_rope_head_dim
    theta = config.compress_rope_theta if ratio else config.rope_theta
    plain = theta ** (-2.0 * np.arange(channels // 2) / channels)
    if not ratio or config.rope_scaling is None:
        return np.asarray(plain)
    ramp = yarn_ramp(config.rope_scaling, theta=theta, channels=channels)
    return np.asarray(plain * ((1.0 - ramp) + ramp / config.rope_scaling.factor))


def rotate(x: Floats, *, positions: Floats, frequencies: Floats) -> Floats:
    """Turns the last 2 * len(frequencies) channels of x [T, ..., c] in pairs (2i, 2i+1); x itself is left alone.

    A pair (a, b) becomes (a cos - b sin, a sin + b cos); negated positions turn it back.
    """
    angles = positions[:, None] * frequencies
    angles = angles.reshape(len(x), *[1] * (x.ndim - 2), len(frequencies))
    still = x.shape[-1] - 2 * len(frequencies)
    a, b = x[..., still::2], x[..., still + 1 :: 2]
    turned = x.copy()
    turned[..., still::2] = a * np.cos(angles) - b * np.sin(angles)
    turned[..., still + 1 :: 2] = a * np.sin(angles) + b * np.cos(angles)
    return turned


# ---------------------------------------------------------------------------------------------------------------------
# Compressed windows (CSA: paper eq. 9-12, HCA: eq. 20-23)
# ---------------------------------------------------------------------------------------------------------------------


def window_slots(values: Floats, *, gates: Floats, window: int, ratio: int) -> tuple[Floats, Floats]:
    """Values and gates of the slots that window `window` pools, each [slots, c].

    HCA: its own `ratio` tokens. CSA: `values` and `gates` are 2c wide, and the slots are the first halves of the
    window before it, then its own second halves; the first window has no predecessor, so those gates are -inf.
    """
    own = slice(window * ratio, (window + 1) * ratio)
    if ratio != CSA_RATIO:
        return values[own], gates[own]
    c = values.shape[-1] // 2
    if window == 0:
        before_values, before_gates = np.zeros((ratio, c)), np.full((ratio, c), -np.inf)
    else:
        before = slice((window - 1) * ratio, window * ratio)
        before_values, before_gates = values[before, :c], gates[before, :c]
    return np.concatenate([before_values, values[own, c:]]), np.concatenate([before_gates, gates[own, c:]])


def compress(x: Floats, *, weights: Weights, ratio: int, frequencies: Floats, eps: float) -> Floats:
    """One row for each complete window of x [T, D]: [T // ratio, c], normed, and rotated to its first token's place."""
    values, gates = x @ weights["kv_proj.weight"].T, x @ weights["gate_proj.weight"].T
    bias = weights["position_bias"]
    gates = gates + np.stack([bias[t % ratio] for t in range(len(x))])
    rows = np.zeros((len(x) // ratio, len(weights["kv_norm.weight"])))
    for window in range(len(rows)):
        slot_values, slot_gates = window_slots(values, gates=gates, window=window, ratio=ratio)
        rows[window] = np.sum(softmax(slot_gates, axis=0) * slot_values, axis=0)
    rows = rms_norm(rows, weight=weights["kv_norm.weight"], eps=eps)
    starts = np.arange(len(rows), dtype=np.float64) * ratio
    return rotate(rows, positions=starts, frequencies=frequencies)


def visible_windows(position: int, *, ratio: int) -> int:
    """How many windows, counted from the first, the query at in-sample `position` may see."""
    return (position + 1) // ratio


# ---------------------------------------------------------------------------------------------------------------------
# Indexer (CSA, paper eq. 13-17)
# ---------------------------------------------------------------------------------------------------------------------


def index_scores(x: Floats, *, latent: Floats, weights: Weights, config: ReadingConfig, frequencies: Floats) -> Floats:
    """[T, W] scores sum_h g_h(t) ReLU(q_h . k_w) of every window, visible or not; `latent` is the normed q latent."""
    heads, width = config.index_n_heads, config.index_head_dim
    keys = compress(x, weights=weights, ratio=CSA_RATIO, frequencies=frequencies, eps=config.rms_norm_eps)
    queries = (latent @ weights["q_b_proj.weight"].T).reshape(len(x), heads, width)
    queries = rotate(queries, positions=np.arange(len(x), dtype=np.float64), frequencies=frequencies)
    head_weights = x @ weights["scorer.weights_proj.weight"].T * heads**-0.5 * width**-0.5
    matches = np.maximum(np.einsum("thc,wc->thw", queries, keys), 0.0)
    return np.asarray(np.einsum("th,thw->tw", head_weights, matches))


def pick_windows(scores: Floats, *, ratio: int, topk: int) -> tuple[tuple[int, ...], ...]:
    """For each query of scores [T, W] its `topk` best visible windows (fewer if fewer are visible), ascending."""
    picks = []
    for position, row in enumerate(scores):
        best = largest(row[: visible_windows(position, ratio=ratio)], count=topk)
        picks.append(tuple(sorted(int(window) for window in best)))
    return tuple(picks)


def index_divergence(probabilities: Floats, *, scores: Floats) -> float:
    """KL(p || softmax(scores)) of one query over its picked rows; p is `probabilities` [H, picked] summed over heads
    and renormalised to 1. A row with p = 0 adds 0; no picked row gives 0."""
    if scores.size == 0:
        return 0.0
    p = probabilities.sum(axis=0)
    p = p / p.sum()
    log_q = scores - scores.max() - np.log(np.sum(np.exp(scores - scores.max())))
    some = p > 0.0
    return float(np.sum(p[some] * (np.log(p[some]) - log_q[some])))


# ---------------------------------------------------------------------------------------------------------------------
# The joint softmax
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attended:
    """`out` [T, D]; `pool` [W, d], its rows; `picks`, the windows each query used, and `divergence` [T], its index KL
    (both CSA only)."""

    out: Floats
    pool: Floats
    picks: tuple[tuple[int, ...], ...] | None
    divergence: Floats | None


def sink_softmax(logits: Floats, *, sinks: Floats) -> Floats:
    """Weights [H, n] of the n keys when each head's sink logit [H] joins the softmax; its own weight is left out."""
    joint = softmax(np.concatenate([logits, sinks[:, None]], axis=1), axis=1)
    return joint[:, :-1]


def project_out(heads: Floats, *, weights: Weights, groups: int) -> Floats:
    """[T, H, d] to [T, D]: each group of H / groups consecutive heads to o_lora, then all groups, in order, to D."""
    grouped = heads.reshape(len(heads), groups, -1)
    first = weights["o_a_proj.weight"].reshape(groups, -1, grouped.shape[-1])
    narrow = np.concatenate([grouped[:, g] @ first[g].T for g in range(groups)], axis=1)
    return np.asarray(narrow @ weights["o_b_proj.weight"].T)


def attend(x: Floats, *, weights: Weights, config: ReadingConfig, ratio: int) -> Attended:
    """Attention of one block (paper, section 2.3) on the normed input x [T, D]; `ratio` is the block's entry."""
    eps, places = config.rms_norm_eps, np.arange(len(x), dtype=np.float64)
    frequencies = inverse_frequencies(config, ratio=ratio)
    latent = rms_norm(x @ weights["q_a_proj.weight"].T, weight=weights["q_a_norm.weight"], eps=eps)
    queries = (latent @ weights["q_b_proj.weight"].T).reshape(len(x), config.num_attention_heads, config.head_dim)
    queries = rotate(rms_norm(queries, eps=eps), positions=places, frequencies=frequencies)
    local = rms_norm(x @ weights["kv_proj.weight"].T, weight=weights["kv_norm.weight"], eps=eps)
    local = rotate(local, positions=places, frequencies=frequencies)

    pool, scores, picks = np.zeros((0, config.head_dim)), None, None
    if ratio:
        compressor = below(weights, "compressor")
        pool = compress(x, weights=compressor, ratio=ratio, frequencies=frequencies, eps=eps)
    if ratio == CSA_RATIO:
        indexer = below(compressor, "indexer")
        scores = index_scores(x, latent=latent, weights=indexer, config=config, frequencies=frequencies)
        picks = pick_windows(scores, ratio=ratio, topk=config.index_topk)

    heads, divergence = np.zeros_like(queries), np.zeros(len(x))
    for t in range(len(x)):
        near = local[max(0, t - config.sliding_window + 1) : t + 1]
        rows = list(range(visible_windows(t, ratio=ratio))) if ratio else []
        if picks is not None:
            rows = list(picks[t])
        keys = np.concatenate([near, pool[rows]])
        probabilities = sink_softmax(queries[t] @ keys.T * config.head_dim**-0.5, sinks=weights["sinks"])
        heads[t] = probabilities @ keys  # one latent is both key and value
        if scores is not None:
            divergence[t] = index_divergence(probabilities[:, len(near) :], scores=scores[t, rows])
    heads = rotate(heads, positions=-places, frequencies=frequencies)
    out = project_out(heads, weights=weights, groups=config.o_groups)
    return Attended(out, pool, picks, divergence if picks is not None else None)
