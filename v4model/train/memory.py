"""What a rank's training step holds, in bytes, counted from the model's own parameters and from what its code keeps.

Letters: n tokens of the rank, K streams, D hidden, s and w bytes of a number in the model's dtype and in the wide one
(float32 or better), b = min(n, BLOCK_TOKENS). With recomputation only the streams [n, K, D] at the borders of blocks
are kept between forward and backward; the backward pass then goes through moments (the loss heads, one block after
another, the update), each with its own sum. The peak is the largest of them. What a block holds depends on the
operations that run, plain or fast: `memory_plain`, `memory_fast`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from v4model.config import V4Config
from v4model.layers.share import Share
from v4model.model import V4Model
from v4model.train import memory_fast, memory_plain
from v4model.train.settings import DTYPES
from v4model.train.work import Parts, Work, streams_of


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
    held, wide = _held(config, share=share, dtype=work.dtype), work.wide
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
        kept = others + _kept(config, share=share, layers=layers[:index], work=work) + 2 * streams_of(config, work)
        kept += streams_of(config, work) * (layers[index] >= config.num_hidden_layers)
        described = memory_fast if work.ops == "fast" else memory_plain
        parts = described.block_of(config, layer=layers[index], share=share, work=work)
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
    """A chunk's logits, and the gradient of the head: wide while it adds up, then rounded.

    Three wide copies of the logits with plain operations; with fast ones they become their gradient in place.
    """
    rows = min(work.tokens, config.loss_chunk_tokens) if work.chunked else work.tokens
    head = config.vocab_size * config.hidden_size
    copies = work.itemsize if work.ops == "fast" else 3 * work.wide
    return float(rows * config.vocab_size * copies + head * (work.wide + work.itemsize))


def _kept(config: V4Config, *, share: Share, layers: list[int], work: Work) -> float:
    """Streams behind each block, before the first one on later stages, and joined to the embeddings before MTP's.

    Without recomputation also what each block keeps.
    """
    depths = sum(layer >= config.num_hidden_layers for layer in layers)
    embedded = 3 * work.tokens * config.hidden_size * work.itemsize
    embeds = share.is_first or depths > 0
    inside = 0.0
    if work.recompute == "none":
        inside = sum(memory_fast.kept_of(config, layer=layer, share=share, work=work) for layer in layers)
    return streams_of(config, work) * (len(layers) + depths + (not share.is_first)) + embedded * embeds + inside
