"""What a rank's training step holds, in bytes, counted from the model's own parameters and from what its code keeps.

Letters: n tokens of the rank, K streams, D hidden, s and w bytes of a number in the model's dtype and in the wide one
(float32 or better), b = min(n, BLOCK_TOKENS). Recomputation is assumed, so that between forward and backward only the
streams [n, K, D] at the borders of blocks are kept; the backward pass then goes through moments (the loss heads, one
block after another, the update), each with its own sum. The peak is the largest of them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache

import torch

from v4model.config import V4Config
from v4model.layers.share import Share
from v4model.model import V4Model
from v4model.ops.blocks import BLOCK_TOKENS
from v4model.train.settings import DTYPES


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a rank trains on.

    tokens: of a pack, on this rank. longest: tokens of the longest sample; it bounds the pooled rows that a query sees.
    micro_batches: packs of a step on this rank. chunked: logits in chunks of `loss_chunk_tokens`, as the model computes
    them; False to ask what that saves. engine: as `TrainSettings`; "megatron" keeps gradients in float32 and spreads
    the optimizer: that of the experts over `expert_replicas` ranks, of all else over `replicas`. offload: share of the
    optimizer on the host.
    """

    tokens: int
    longest: int
    micro_batches: int = 1
    dtype: str = "bfloat16"
    chunked: bool = True
    engine: str = "torch"
    replicas: int = 1
    expert_replicas: int = 1
    offload: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Bytes at one moment. parameters, gradients and optimizer are counted exactly; the rest follows the code.

    streams: kept at the borders of blocks, with their gradients. block: the one block that is being recomputed, without
    pools (compressed windows) and scores (the indexer's). logits: of the loss heads, with the head's wide gradient.
    update: what the optimizer adds for its largest parameter.
    """

    parameters: float = 0
    gradients: float = 0
    optimizer: float = 0
    streams: float = 0
    block: float = 0
    pools: float = 0
    scores: float = 0
    logits: float = 0
    update: float = 0

    @property
    def exact(self) -> float:
        """Of what does not depend on the tokens."""
        return self.parameters + self.gradients + self.optimizer + self.update

    @property
    def total(self) -> float:
        return float(sum(getattr(self, field.name) for field in fields(self)))


@dataclass(frozen=True)
class Weights:
    """Of one piece of the model: parameters and their bytes; `largest` is the biggest one's number of parameters."""

    count: int = 0
    nbytes: int = 0
    largest: int = 0

    def __add__(self, other: Weights) -> Weights:
        return Weights(self.count + other.count, self.nbytes + other.nbytes, max(self.largest, other.largest))

    def times(self, part: float) -> Weights:
        """That part of every parameter."""
        return Weights(*(round(number * part) for number in (self.count, self.nbytes, self.largest)))


def weights_of(config: V4Config, *, share: Share, dtype: str) -> dict[str, Weights]:
    """By piece of a rank's share: "embedding", "head", and every block by its name ("mtp.0.block")."""
    found: dict[str, Weights] = {}
    for (piece, _), weights in _held(config, share=share, dtype=dtype).items():
        found[piece] = found.get(piece, Weights()) + weights
    return found


def _held(config: V4Config, *, share: Share, dtype: str) -> dict[tuple[str, bool], Weights]:
    """By piece of a rank's share, experts apart."""
    found: dict[tuple[str, bool], Weights] = {}
    layers = {config.block_name(layer) for layer in share.layers(config)}
    held = len(share.experts(config.n_routed_experts)) / config.n_routed_experts
    for (piece, expert), whole in _whole(config, dtype).items():
        of_stage = piece in layers if piece.startswith("trunk.layers.") else share.is_last
        if piece == "embedding":
            of_stage = share.is_first or (share.is_last and config.num_nextn_predict_layers > 0)
        if of_stage:
            found[piece, expert] = whole.times(held) if expert else whole
    return found


@dataclass(frozen=True, kw_only=True)
class _Training:
    """Bytes that an engine keeps beside the weights, those on the host apart; `update`: more, while it updates."""

    gradients: float
    optimizer: float
    host: float
    update: float


def _training(config: V4Config, *, share: Share, work: Work) -> _Training:
    held, wide = _held(config, share=share, dtype=work.dtype), _wide(work)
    experts = sum((weights for (_, expert), weights in held.items() if expert), Weights())
    rest = sum((weights for (_, expert), weights in held.items() if not expert), Weights())
    own = experts + rest
    if work.engine == "torch":
        optimizer = 3.0 * own.count * wide
        return _Training(gradients=own.nbytes, optimizer=optimizer, host=0, update=2.0 * own.largest * wide)
    parts = rest.count / work.replicas, experts.count / work.expert_replicas
    optimizer, on_card = 3.0 * sum(parts) * wide, 1 - work.offload
    return _Training(
        gradients=own.count * wide,
        optimizer=on_card * optimizer,
        # Its gradients wait there too.
        host=work.offload * (optimizer + sum(parts) * wide),
        # One root of all second moments of a part at once.
        update=on_card * max(parts) * wide,
    )


@lru_cache(maxsize=16)
def _whole(config: V4Config, dtype: str) -> dict[tuple[str, bool], Weights]:
    """By piece of the whole model, experts apart; from its parameters' shapes."""
    found: dict[tuple[str, bool], Weights] = {}
    for name, parameter in V4Model(config, dtype=DTYPES[dtype], device="meta").named_parameters():
        key = _piece(name), ".experts." in name
        found[key] = found.get(key, Weights()) + Weights(parameter.numel(), parameter.nbytes, parameter.numel())
    return found


def _piece(name: str) -> str:
    words = name.split(".")
    if name.startswith("trunk.layers."):
        return ".".join(words[:3])
    if words[0] == "mtp":
        return f"mtp.{words[1]}.block"
    return "embedding" if "embed_tokens" in words else "head"


def peak_of(config: V4Config, *, share: Share, work: Work) -> Parts:
    """The moment of a step that holds most, on a rank with that share."""
    return max(moments_of(config, share=share, work=work).values(), key=lambda parts: parts.total)


def moments_of(config: V4Config, *, share: Share, work: Work) -> dict[str, Parts]:
    """By moment: "heads" (last stage only), each block of the share from the last to the first, "update"."""
    weights = weights_of(config, share=share, dtype=work.dtype)
    kept_by_engine = _training(config, share=share, work=work)
    parameters = sum(weights.values(), Weights()).nbytes
    base = Parts(parameters=parameters, gradients=kept_by_engine.gradients, optimizer=kept_by_engine.optimizer)
    layers = [*share.layers(config)]
    if share.is_last:
        layers += range(config.num_hidden_layers, config.num_hidden_layers + config.num_nextn_predict_layers)
    others = (_under_way(share, work) - 1) * _kept(config, share=share, layers=layers, work=work)
    # Torch's gradients come one after another; a micro-batch that is not the first finds those of the others.
    they_come = work.engine == "torch" and work.micro_batches == 1
    there = 0 if they_come else kept_by_engine.gradients
    found: dict[str, Parts] = {}
    if share.is_last:
        there = max(there, weights["head"].nbytes)
        kept = others + _kept(config, share=share, layers=layers, work=work)
        found["heads"] = replace(base, gradients=there, streams=kept, logits=logits_of(config, work=work))
    for index in reversed(range(len(layers))):
        name = config.block_name(layers[index])
        if they_come:
            there += weights[name].nbytes
        # What the block was given and those before it; the step's output, which is held to its end; one gradient.
        kept = others + _kept(config, share=share, layers=layers[:index], work=work) + 2 * _streams(config, work)
        kept += _streams(config, work) * (layers[index] >= config.num_hidden_layers)
        parts = block_of(config, layer=layers[index], share=share, work=work)
        found[name] = replace(
            parts, parameters=base.parameters, optimizer=base.optimizer, gradients=there, streams=kept
        )
    found["update"] = replace(base, update=kept_by_engine.update)
    return found


def _under_way(share: Share, work: Work) -> int:
    """Micro-batches that went forward and not backward yet: in Megatron's pipeline as many as stages are to come."""
    if share.stages == 1:
        return 1
    return min(work.micro_batches, share.stages - share.stage) if work.engine == "megatron" else work.micro_batches


def host_of(config: V4Config, *, share: Share, work: Work) -> float:
    """Bytes on the host with offload: the optimizer's weights and moments, and the gradients that they wait for."""
    return _training(config, share=share, work=work).host


def logits_of(config: V4Config, *, work: Work) -> float:
    """Three copies of a chunk's logits, and the gradient of the head: wide while it adds up, then rounded."""
    rows = min(work.tokens, config.loss_chunk_tokens) if work.chunked else work.tokens
    itemsize, wide = DTYPES[work.dtype].itemsize, _wide(work)
    head = config.vocab_size * config.hidden_size
    return float(3 * rows * config.vocab_size * wide + head * (wide + itemsize))


def block_of(config: V4Config, *, layer: int, share: Share, work: Work) -> Parts:
    """What one recomputed block holds at the worse of its two ends.

    All of it, while its last expansion of the streams goes backward and while its experts do; later its attention
    alone, on a block of queries. Each holds what the part keeps for all n tokens, and the work on b of them.
    """
    n, s, w = work.tokens, DTYPES[work.dtype].itemsize, _wide(work)
    hidden, latent, width = config.hidden_size, config.q_lora_rank, config.head_dim
    # The input of a norm: as the part got it, wide, wide and normed, rounded.
    normed = hidden * (2 * w + 2 * s)
    attention = n * (normed + (latent + width) * (2 * w + 2 * s) + config.o_groups * config.o_lora_rank * s)
    # The router's input is wide once more; the attention's output and the streams behind it are kept too.
    moe = n * (normed + hidden * (w + s + config.hc_mult * s))
    moe += n * (5 * config.moe_intermediate_size * s + 3 * config.n_routed_experts * w)
    # Outputs of the experts, of the shared one and their sum, the gradient of the sum, and of the streams once more.
    expansion = n * hidden * (4 + config.hc_mult) * s
    mixing = _mixing(config, work=work)
    return Parts(
        block=float(
            max(
                attention + moe + max(expansion, _experts(config, share=share, work=work), mixing),
                attention + max(_attention(config, layer=layer, work=work), mixing),
            )
        ),
        pools=_pools(config, layer=layer, work=work),
        scores=_scores(config, layer=layer, work=work),
    )


def _attention(config: V4Config, *, layer: int, work: Work) -> float:
    """b queries: keys as gathered with their row and mask, softmax wide and rounded, q and outputs (wide, rounded)."""
    s, w, b = DTYPES[work.dtype].itemsize, _wide(work), min(work.tokens, BLOCK_TOKENS)
    columns = config.sliding_window + _read_rows(config, layer=layer, work=work)
    heads, width = config.num_attention_heads, config.head_dim
    return float(b * (columns * (width * s + heads * (w + s) + 9) + heads * width * (w + 4 * s)))


def _experts(config: V4Config, *, share: Share, work: Work) -> float:
    """The chosen experts' rows: four of D, six of the experts' width; of b tokens, or on expert ranks of all n.

    There as many rows are taken to come as go, and two more of D travel. Later, when the rows are gone, the gradients
    of a stack of experts: one by one, joined, and behind the first block of tokens added to those that are there.
    """
    s, hidden, width = DTYPES[work.dtype].itemsize, config.hidden_size, config.moe_intermediate_size
    b = min(work.tokens, BLOCK_TOKENS)
    stack = len(share.experts(config.n_routed_experts)) * 3 * width * hidden * s
    if share.expert_ranks > 1:
        rows = work.tokens * config.num_experts_per_tok * (6 * hidden + 6 * width) * s
        return float(max(rows, stack))
    if config.experts_have_fixed_shape:
        return float(b * config.n_routed_experts * (2 * hidden + 6 * width) * s + stack)
    rows = b * config.num_experts_per_tok * (4 * hidden + 6 * width) * s
    return float(max(rows, stack * (2 if work.tokens > b else 1)))


def _mixing(config: V4Config, *, work: Work) -> float:
    """mHC on b tokens: the streams wide, normed, and their gradients."""
    return float(6 * min(work.tokens, BLOCK_TOKENS) * config.hc_mult * config.hidden_size * _wide(work))


def _pools(config: V4Config, *, layer: int, work: Work) -> float:
    """Each compressor: values and softmax of its windows' slots; with CSA's overlap every token is in two of them."""
    kind, s, w = config.kind(layer), DTYPES[work.dtype].itemsize, _wide(work)
    if kind == "dense":
        return 0.0
    channels = 2 * (config.head_dim + config.index_head_dim) if kind == "csa" else config.head_dim
    return float(work.tokens * channels * (s + w))


def _scores(config: V4Config, *, layer: int, work: Work) -> float:
    """The indexer: queries, picks and their scores; and, for a block of queries, keys and scores of all in sight."""
    if config.kind(layer) != "csa":
        return 0.0
    s, w, n = DTYPES[work.dtype].itemsize, _wide(work), work.tokens
    heads, width, picked = config.index_n_heads, config.index_head_dim, config.index_topk
    sight = work.longest // config.compress_ratios[layer]
    queries = min(n, config.attention_block_tokens)
    return float(n * (2 * heads * width * s + picked * (8 + w)) + queries * sight * (width * (s + w) + 2 * heads * w))


def _read_rows(config: V4Config, *, layer: int, work: Work) -> int:
    """Pooled rows that a query reads."""
    ratio = config.compress_ratios[layer]
    return {"dense": 0, "csa": config.index_topk, "hca": work.longest // max(ratio, 1)}[config.kind(layer)]


def _kept(config: V4Config, *, share: Share, layers: list[int], work: Work) -> float:
    """Streams behind each block, before the first one on later stages, and joined to the embeddings before MTP's."""
    depths = sum(layer >= config.num_hidden_layers for layer in layers)
    embedded = 3 * work.tokens * config.hidden_size * DTYPES[work.dtype].itemsize
    embeds = share.is_first or depths > 0
    return _streams(config, work) * (len(layers) + depths + (not share.is_first)) + embedded * embeds


def _streams(config: V4Config, work: Work) -> float:
    return float(work.tokens * config.hc_mult * config.hidden_size * DTYPES[work.dtype].itemsize)


def _wide(work: Work) -> int:
    return torch.promote_types(DTYPES[work.dtype], torch.float32).itemsize
