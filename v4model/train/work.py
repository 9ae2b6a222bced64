"""What a rank trains on, and the parts of what it holds; both ways to compute are described in these words."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from v4model.config import V4Config
from v4model.errors import ConfigError
from v4model.ops.blocks import BLOCK_TOKENS
from v4model.ops.twins import has_fast_twins
from v4model.train.settings import DTYPES

OPS, RECOMPUTE = ("plain", "fast"), ("none", "blocks", "within")


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a rank trains on.

    tokens: of a pack, on this rank. longest: tokens of the longest sample; it bounds the pooled rows that a query sees.
    micro_batches: packs of a step on this rank. chunked: logits in chunks of `loss_chunk_tokens`, as the model computes
    them; False to ask what that saves. engine: as `TrainSettings`; "megatron" keeps gradients in float32 and spreads
    the optimizer: that of the experts over `expert_replicas` ranks, of all else over `replicas`. offload: share of the
    optimizer on the host. ops: "plain" or "fast", which operations run (`v4model.ops.twins`). recompute: "none", whole
    "blocks", or also the parts "within" a block when it is computed again, as the engines do.

    Raises:
        ConfigError: another word for ops or recompute; plain operations with another recomputation than "within".
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
    ops: str = "plain"
    recompute: str = "within"

    def __post_init__(self) -> None:
        for name, known in (("ops", OPS), ("recompute", RECOMPUTE)):
            if getattr(self, name) not in known:
                got = f"{name} {getattr(self, name)!r}"
                raise ConfigError(got=got, expected=f"one of {', '.join(known)}", where="memory")
        if self.ops == "plain" and self.recompute != "within":
            got = f"recompute {self.recompute!r} of plain operations"
            raise ConfigError(got=got, expected="within: no other was measured", where="memory")

    @property
    def itemsize(self) -> int:
        """Bytes of a number in the model's dtype."""
        return DTYPES[self.dtype].itemsize

    @property
    def wide(self) -> int:
        """Bytes of a number in float32 or better."""
        return torch.promote_types(DTYPES[self.dtype], torch.float32).itemsize

    @property
    def block_tokens(self) -> int:
        """Tokens that parts of a block compute at once."""
        return min(self.tokens, BLOCK_TOKENS)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Bytes at one moment. parameters, gradients and optimizer are counted exactly; the rest follows the code.

    streams: kept at the borders of blocks, with their gradients; without recomputation also what the blocks before
    keep. block: the one block that is being recomputed, without pools (compressed windows) and scores (the indexer's).
    logits: of the loss heads, with the head's wide gradient. update: what the optimizer adds for its largest parameter.
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


def ops_on_card(dtype: str) -> str:
    """The operations that run on a CUDA card with Triton."""
    return "fast" if has_fast_twins(DTYPES[dtype]) else "plain"


def read_rows(config: V4Config, *, layer: int, work: Work) -> int:
    """Pooled rows that a query reads."""
    ratio = config.compress_ratios[layer]
    return {"dense": 0, "csa": config.index_topk, "hca": work.longest // max(ratio, 1)}[config.kind(layer)]


def streams_of(config: V4Config, work: Work) -> float:
    """Of the streams [n, K, D] once."""
    return float(work.tokens * config.hc_mult * config.hidden_size * work.itemsize)
