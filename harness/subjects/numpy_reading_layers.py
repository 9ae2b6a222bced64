"""The layers of the NumPy reading that do not look along the sequence: norms, hyper-connections, experts.

Letters: T tokens of one sample, K residual streams, D hidden width, E experts, k experts per token, I expert width.
Everything is float64 and a plain function of arrays; nothing here is shared with the model under test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.errors import HarnessError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Weights = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class ReadingYarn:
    """YaRN settings of the compressed layers; `original_max_position_embeddings` is in tokens, betas in rotations."""

    factor: float
    original_max_position_embeddings: float
    beta_fast: float
    beta_slow: float


@dataclass(frozen=True, kw_only=True)
class ReadingConfig:
    """The sizes and constants that the text of the model needs beyond what weight shapes already say."""

    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    qk_rope_head_dim: int
    o_groups: int
    sliding_window: int
    compress_ratios: tuple[int, ...]
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    n_routed_experts: int
    num_experts_per_tok: int
    routed_scaling_factor: float
    num_hash_layers: int
    swiglu_limit: float
    hc_mult: int
    hc_sinkhorn_iters: int
    hc_eps: float
    rms_norm_eps: float
    rope_theta: float
    compress_rope_theta: float
    rope_scaling: ReadingYarn | None
    num_nextn_predict_layers: int
    mtp_scale: float
    balance_coef: float
    index_kl_coef: float

    def __post_init__(self) -> None:
        blocks = self.num_hidden_layers + self.num_nextn_predict_layers
        if len(self.compress_ratios) != blocks:
            got, expected = f"{len(self.compress_ratios)} compress_ratios", f"{blocks}, one for each block"
            raise HarnessError(got=got, expected=expected, where="the configuration of a reading")

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> ReadingConfig:
        """Picks the needed fields from any mapping of field name to value and ignores the others.

        Raises:
            HarnessError: a needed field is absent, or the ratios do not match the number of blocks.
        """
        values = _pick(mapping, [field.name for field in fields(cls)])
        values["compress_ratios"] = tuple(int(ratio) for ratio in values["compress_ratios"])
        if values["rope_scaling"] is not None:
            yarn = _pick(values["rope_scaling"], [field.name for field in fields(ReadingYarn)])
            values["rope_scaling"] = ReadingYarn(**yarn)
        return cls(**values)


def _pick(mapping: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    absent = [name for name in names if name not in mapping]
    if absent:
        expected = f"all of {', '.join(names)}"
        raise HarnessError(got=f"a mapping without {', '.join(absent)}", expected=expected, where="its names")
    return {name: mapping[name] for name in names}


def below(weights: Weights, prefix: str) -> dict[str, npt.NDArray[Any]]:
    """The weights under `prefix.`, with the prefix taken off."""
    start = prefix + "."
    return {name[len(start) :]: array for name, array in weights.items() if name.startswith(start)}


# ---------------------------------------------------------------------------------------------------------------------
# Elementary functions
# ---------------------------------------------------------------------------------------------------------------------


def rms_norm(x: Floats, *, weight: Floats | None = None, eps: float) -> Floats:
    """RMSNorm over the last axis: x / sqrt(mean(x^2) + eps), times `weight` where there is one."""
    normed = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    return np.asarray(normed if weight is None else normed * weight)


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x)), written so that a large |x| does not overflow."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -x)))


def softmax(x: Floats, *, axis: int) -> Floats:
    """Softmax along `axis`; entries of -inf get weight exactly 0 (at least one entry must be finite)."""
    powers = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return np.asarray(powers / np.sum(powers, axis=axis, keepdims=True))


def largest(scores: Floats, *, count: int) -> Ints:
    """Indices of the `count` largest scores (all if fewer), best first; equal scores go to the lower index.

    A stable sort of the negated scores does it: it keeps equal keys in order, and it holds +0 and -0 to be equal.
    """
    return np.asarray(np.argsort(-scores, kind="stable")[:count], dtype=np.int64)


# ---------------------------------------------------------------------------------------------------------------------
# Manifold-constrained hyper-connections (paper, section 2.2)
# ---------------------------------------------------------------------------------------------------------------------


def sinkhorn(logits: Floats, *, iterations: int, eps: float) -> Floats:
    """[..., K, K] logits to the nearly doubly stochastic mixing matrix: softmax over the last axis + eps, one column
    normalisation, then iterations - 1 times (row, column). Column sums run over axis -2, row sums over axis -1."""
    matrix = softmax(logits, axis=-1) + eps
    matrix = matrix / (matrix.sum(axis=-2, keepdims=True) + eps)
    for _ in range(iterations - 1):
        matrix = matrix / (matrix.sum(axis=-1, keepdims=True) + eps)
        matrix = matrix / (matrix.sum(axis=-2, keepdims=True) + eps)
    return np.asarray(matrix)


def hyper_coefficients(streams: Floats, *, weights: Weights, config: ReadingConfig) -> tuple[Floats, Floats, Floats]:
    """pre [T, K], post [T, K] and comb [T, K, K] from streams [T, K, D] and one set of `fn`, `base`, `scale`."""
    tokens, k = streams.shape[0], config.hc_mult
    flat = rms_norm(streams.reshape(tokens, -1), eps=config.rms_norm_eps)
    y = flat @ weights["fn"].T
    scale, base = weights["scale"], weights["base"]
    pre = sigmoid(scale[0] * y[:, :k] + base[:k]) + config.hc_eps
    post = 2.0 * sigmoid(scale[1] * y[:, k : 2 * k] + base[k : 2 * k])
    logits = (scale[2] * y[:, 2 * k :] + base[2 * k :]).reshape(tokens, k, k)
    return pre, post, sinkhorn(logits, iterations=config.hc_sinkhorn_iters, eps=config.hc_eps)


def collapse(streams: Floats, *, pre: Floats) -> Floats:
    """sum_k pre_k X_k: [T, K, D] to the [T, D] input of a layer."""
    return np.asarray(np.einsum("tk,tkd->td", pre, streams))


def expand(streams: Floats, *, out: Floats, post: Floats, comb: Floats) -> Floats:
    """Stream k becomes post_k * out + sum_j comb[j, k] X_j, X being the streams before the collapse."""
    return np.asarray(post[:, :, None] * out[:, None, :] + np.einsum("tjk,tjd->tkd", comb, streams))


def hyper_head(streams: Floats, *, weights: Weights, config: ReadingConfig) -> Floats:
    """[T, K, D] to [T, D] before a final norm: a sigmoid gate per stream, plus hc_eps, and no Sinkhorn."""
    flat = rms_norm(streams.reshape(streams.shape[0], -1), eps=config.rms_norm_eps)
    gate = sigmoid(weights["hc_scale"].item() * (flat @ weights["hc_fn"].T) + weights["hc_base"]) + config.hc_eps
    return collapse(streams, pre=gate)


# ---------------------------------------------------------------------------------------------------------------------
# Mixture of experts (paper, section 2.1)
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Routing:
    """What a router did: `chosen` [T, k] expert ids, `affinity` [T, E], and whether the router is a learned one."""

    chosen: Ints
    affinity: Floats
    learned: bool

    def share(self) -> Floats:
        """[T, E]: each affinity over the sum of the token's affinities to all E experts."""
        return np.asarray(self.affinity / self.affinity.sum(axis=-1, keepdims=True))


def route(x: Floats, *, tokens: Sequence[int], weights: Weights, config: ReadingConfig, hashed: bool) -> Routing:
    """Chooses experts for x [T, D]: by the token-id table in a hash layer, else top-k of affinity + selection bias.

    Raises:
        HarnessError: a token id outside the table of a hash layer.
    """
    affinity = np.sqrt(np.logaddexp(0.0, x @ weights["weight"].T))
    if not hashed:
        biased = affinity + weights["e_score_correction_bias"]
        chosen = np.stack([largest(row, count=config.num_experts_per_tok) for row in biased])
        return Routing(chosen, affinity, learned=True)
    table = weights["tid2eid"]
    outside = [token for token in tokens if not 0 <= token < len(table)]
    if outside:
        expected = f"an id in [0, {len(table)})"
        raise HarnessError(got=f"token id {outside[0]}", expected=expected, where="the expert table of a hash layer")
    return Routing(np.asarray(table[list(tokens)], dtype=np.int64), affinity, learned=False)


def swiglu(x: Floats, *, gate: Floats, up: Floats, down: Floats, limit: float) -> Floats:
    """down(SiLU(min(gate x, limit)) * clamp(up x, -limit, limit)) for one token [D] or many [T, D]."""
    gated = np.minimum(x @ gate.T, limit)
    return np.asarray((gated * sigmoid(gated) * np.clip(x @ up.T, -limit, limit)) @ down.T)


def mixture(
    x: Floats, *, tokens: Sequence[int], weights: Weights, config: ReadingConfig, hashed: bool
) -> tuple[Floats, Routing]:
    """Routed plus shared experts for x [T, D]; the selection bias never enters the expert weights."""
    routing = route(x, tokens=tokens, weights=below(weights, "gate"), config=config, hashed=hashed)
    gate_up, down = weights["experts.gate_up_proj"], weights["experts.down_proj"]
    width, limit = down.shape[-1], config.swiglu_limit
    shared = {name: weights[f"shared_experts.{name}_proj.weight"] for name in ("gate", "up", "down")}
    out = swiglu(x, **shared, limit=limit)
    for t in range(len(x)):
        affinity = routing.affinity[t, routing.chosen[t]]
        portions = affinity / (affinity.sum() + 1e-20) * config.routed_scaling_factor
        for expert, portion in zip(routing.chosen[t], portions, strict=True):
            gate, up = gate_up[expert, :width], gate_up[expert, width:]
            out[t] += portion * swiglu(x[t], gate=gate, up=up, down=down[expert], limit=limit)
    return out, routing


def selection_counts(routing: Routing, *, valid: Bools) -> Ints:
    """[E]: how often the valid tokens chose each expert."""
    return np.bincount(routing.chosen[valid].ravel(), minlength=routing.affinity.shape[-1]).astype(np.int64)


def balance_sum(routing: Routing, *, valid: Bools) -> float:
    """len * L of one sample in one layer, L = E / (k len) * sum_e count_e * mean share_e, over the valid tokens only;
    0 if none is valid."""
    length = int(valid.sum())
    if length == 0:
        return 0.0
    experts, k = routing.affinity.shape[-1], routing.chosen.shape[-1]
    mean_share = routing.share()[valid].mean(axis=0)
    loss = experts / (k * length) * np.sum(selection_counts(routing, valid=valid) * mean_share)
    return float(length * loss)
