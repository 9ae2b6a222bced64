"""An independent reading of the model's definition for one sample, in plain NumPy float64.

It is an oracle: written from the text alone, it shares no code with the model under test, knows nothing of packs (a
sample is all there is, so nothing can leak), and prefers loops to speed. Weights carry the names of transformers'
DeepseekV4ForCausalLM, and `mtp.{k}.*` for the prediction depths.

Letters: T tokens of the sample, K residual streams, D hidden width, V vocabulary, E experts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.errors import HarnessError
from harness.subjects.numpy_reading_blocks import BlockNotes, embeddings_ahead, mtp_input, run_block
from harness.subjects.numpy_reading_layers import (
    Bools,
    Floats,
    Ints,
    ReadingConfig,
    ReadingYarn,
    Weights,
    below,
    hyper_head,
    rms_norm,
)

__all__ = ["DepthReading", "Reading", "ReadingConfig", "ReadingYarn", "directional_derivative", "read"]


@dataclass(frozen=True)
class DepthReading:
    """What one head says: depth 0 is the trunk, depth k the k-th MTP block.

    `logits` [T, V]; `hidden` [T, D] after the head's norm; `nll` [T] in nats, 0 where position t has no label whatever
    the mask; `valid` [T], t + depth < T; `counted` [T], a label exists and is supervised. Sum and count go over
    `counted`.
    """

    logits: Floats
    hidden: Floats
    nll: Floats
    valid: Bools
    counted: Bools
    nll_sum: float
    count: int

    def mean(self) -> float:
        """nll_sum / count, and 0 where nothing is counted."""
        return self.nll_sum / self.count if self.count else 0.0


@dataclass(frozen=True)
class Reading:
    """Everything the text defines for one sample. Block names are `model.layers.{i}` and `mtp.{k}`.

    The first six fields are the trunk's, as in `DepthReading`; `mtp[k - 1]` is depth k. `balance_sums` holds
    len * L and `balance_lengths` len for each learned-router block (an MTP block's len is its number of valid
    positions); `kl` the index KL of each query [T] for each CSA block; `router_counts` the selections [E] of valid
    positions for each learned-router block; `experts` every position's selection [T, k] for every block; `picks` the
    ascending window indices of each query for each CSA block. `parts` are what the parts of every block put out, by
    block and part ("model.layers.1.self_attn"), in the order of execution: the collapsed streams [T, D] of attn_hc and
    ffn_hc, self_attn and mlp [T, D], the pooled rows [W, d] of self_attn.compressor, the expanded streams [T, K, D] of
    attn_hc.streams and ffn_hc.streams, the embeddings ahead [T, D] of mtp.{k}.e_proj.shifted. `loss` is the total of a
    step made of this one sample.
    """

    logits: Floats
    hidden: Floats
    nll: Floats
    counted: Bools
    main_nll_sum: float
    main_count: int
    mtp: tuple[DepthReading, ...]
    balance_sums: Mapping[str, float]
    balance_lengths: Mapping[str, int]
    kl: Mapping[str, Floats]
    router_counts: Mapping[str, Ints]
    experts: Mapping[str, Ints]
    picks: Mapping[str, tuple[tuple[int, ...], ...]]
    parts: Mapping[str, Floats]
    balance_sum: float
    kl_sum: float
    loss: float


def read_head(
    streams: Floats,
    *,
    tokens: Sequence[int],
    supervised: Sequence[bool],
    weights: Weights,
    output: Floats,
    config: ReadingConfig,
    depth: int,
) -> DepthReading:
    """HyperHead, norm and LM head; position t is labelled by token t + depth + 1, whose mask entry decides.

    `weights` hold the `hc_head.*` and `norm.weight` of the depth, `output` [V, D] is the LM head that all depths share.
    """
    length = len(tokens)
    hidden = hyper_head(streams, weights=below(weights, "hc_head"), config=config)
    hidden = rms_norm(hidden, weight=weights["norm.weight"], eps=config.rms_norm_eps)
    logits = hidden @ output.T
    nll, counted = np.zeros(length), np.zeros(length, dtype=np.bool_)
    for t in range(length - depth - 1):
        label = t + depth + 1
        peak = logits[t].max()
        nll[t] = peak + np.log(np.sum(np.exp(logits[t] - peak))) - logits[t, tokens[label]]
        counted[t] = supervised[label]
    valid = np.asarray([t + depth < length for t in range(length)])
    return DepthReading(logits, hidden, nll, valid, counted, float(nll[counted].sum()), int(counted.sum()))


def read(
    config: ReadingConfig,
    weights: Mapping[str, npt.NDArray[Any]],
    tokens: Sequence[int],
    supervised: Sequence[bool] | None = None,
) -> Reading:
    """Reads one sample.

    Args:
        config: sizes and constants.
        weights: arrays by transformers' names; floating ones are read as float64.
        tokens: T token ids.
        supervised: T flags, each for its own token as a label; None supervises all.

    Raises:
        HarnessError: no tokens, a mask of another length, or a token id outside the vocabulary.
        KeyError: a weight is absent.
    """
    weights = {name: np.asarray(w, dtype=np.float64 if w.dtype.kind == "f" else w.dtype) for name, w in weights.items()}
    tokens = [int(token) for token in tokens]
    supervised = [True] * len(tokens) if supervised is None else [bool(flag) for flag in supervised]
    table, output = weights["model.embed_tokens.weight"], weights["lm_head.weight"]
    _check_sample(tokens, supervised, vocabulary=len(table))

    notes = BlockNotes()
    embedded = table[tokens]
    streams = np.repeat(embedded[:, None, :], config.hc_mult, axis=1)
    everywhere = np.ones(len(tokens), dtype=np.bool_)

    def block(streams: Floats, *, layer: int, valid: Bools) -> Floats:
        return run_block(streams, tokens=tokens, valid=valid, weights=weights, config=config, layer=layer, notes=notes)

    def head(streams: Floats, *, owner: str, depth: int) -> DepthReading:
        return read_head(
            streams, tokens=tokens, supervised=supervised, weights=below(weights, owner), output=output,
            config=config, depth=depth,
        )  # fmt: skip

    for layer in range(config.num_hidden_layers):
        streams = block(streams, layer=layer, valid=everywhere)
    trunk = head(streams, owner="model", depth=0)

    mtp = []
    for depth in range(1, config.num_nextn_predict_layers + 1):
        own, valid = below(weights, f"mtp.{depth - 1}"), np.arange(len(tokens)) + depth < len(tokens)
        notes.parts[f"mtp.{depth - 1}.e_proj.shifted"] = embeddings_ahead(embedded, depth=depth)
        streams = mtp_input(embedded, streams=streams, weights=own, depth=depth, eps=config.rms_norm_eps)
        streams = block(streams, layer=config.num_hidden_layers + depth - 1, valid=valid)
        mtp.append(head(streams, owner=f"mtp.{depth - 1}", depth=depth))
    return _assemble(trunk, mtp=tuple(mtp), notes=notes, config=config)


def _check_sample(tokens: Sequence[int], supervised: Sequence[bool], *, vocabulary: int) -> None:
    if not tokens:
        raise HarnessError(got="a sample of 0 tokens", expected="at least 1", where="a reading")
    if len(supervised) != len(tokens):
        got, expected = f"{len(supervised)} supervised flags", f"{len(tokens)}, one for each token"
        raise HarnessError(got=got, expected=expected, where="a reading")
    for position, token in enumerate(tokens):
        if not 0 <= token < vocabulary:
            expected = f"an id in [0, {vocabulary})"
            raise HarnessError(got=f"token id {token}", expected=expected, where=f"position {position}")


def _assemble(
    trunk: DepthReading, *, mtp: tuple[DepthReading, ...], notes: BlockNotes, config: ReadingConfig
) -> Reading:
    """Adds the terms up: main + mtp_scale / depths * sum of MTP means + balance + index KL per token."""
    kl_sum = float(sum(queries.sum() for queries in notes.kl.values()))
    loss = trunk.mean() + config.balance_coef * notes.balance_mean()
    loss += config.index_kl_coef * kl_sum / len(trunk.nll)
    if mtp:
        loss += config.mtp_scale / len(mtp) * sum(depth.mean() for depth in mtp)
    return Reading(
        logits=trunk.logits, hidden=trunk.hidden, nll=trunk.nll, counted=trunk.counted,
        main_nll_sum=trunk.nll_sum, main_count=trunk.count, mtp=mtp,
        balance_sums=notes.balance_sums, balance_lengths=notes.balance_lengths, kl=notes.kl,
        router_counts=notes.router_counts, experts=notes.experts, picks=notes.picks, parts=notes.parts,
        balance_sum=float(sum(notes.balance_sums.values())), kl_sum=kl_sum, loss=loss,
    )  # fmt: skip


def directional_derivative(
    config: ReadingConfig,
    weights: Mapping[str, npt.NDArray[Any]],
    tokens: Sequence[int],
    direction: Mapping[str, npt.NDArray[Any]],
    scalar: Callable[[Reading], float],
    *,
    step: float = 1e-6,
    supervised: Sequence[bool] | None = None,
) -> float:
    """Central difference of `scalar` along `direction` (arrays for some of the weights), error about step^2.

    It differentiates the value, so it knows no detached quantity: the index KL may be compared with a model's gradient
    only along the indexer's own weights, and terms other than the KL along any.

    Raises:
        HarnessError: a pick or an expert changes between the two ends, where no derivative exists; take a smaller step.
    """
    ends = []
    for sign in (1.0, -1.0):
        moved = {name: weights[name] + sign * step * np.asarray(way) for name, way in direction.items()}
        ends.append(read(config, {**weights, **moved}, tokens, supervised))
    plus, minus = ends
    same_experts = all(np.array_equal(plus.experts[name], minus.experts[name]) for name in plus.experts)
    if plus.picks != minus.picks or not same_experts:
        got = "another choice of windows or experts at the two ends"
        raise HarnessError(got=got, expected="the same choice", where=f"a difference of step {step}")
    return (scalar(plus) - scalar(minus)) / (2.0 * step)
