"""What a block holds with the fast twins; letters as in `v4model.train.memory`.

Each twin keeps its arguments and little else, and nothing in float32 but the router's input. What a block keeps is
that of all n tokens without recomputation "within", else of the b tokens that one part computes at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from v4model.config import V4Config
from v4model.layers.share import Share
from v4model.train.memory_plain import experts_of
from v4model.train.work import Parts, Work, read_rows, streams_of

_SCRATCH_TOKENS = 2048
"""As `BACKWARD_TOKENS` of `v4model.ops.fast.tuning`, which needs Triton."""

_ROUND = 64
"""Columns of a query are a multiple of it, as rows of attention's blocks."""


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """By a block: between its parts, and inside attention and experts; with a copy of streams that are no tensor."""

    attention: float
    queries: float
    moe: float
    rows: float
    copies: float


def kept_of(config: V4Config, *, layer: int, share: Share, work: Work) -> float:
    """From forward to backward, without recomputation; the streams at its borders apart."""
    kept = _kept(config, layer=layer, share=share, work=work)
    inside = kept.attention + kept.queries + kept.moe + kept.rows + kept.copies
    return inside + _pools(config, layer=layer, work=work) + _scores(config, layer=layer, work=work)


def block_of(config: V4Config, *, layer: int, share: Share, work: Work) -> Parts:
    """What one block holds when its last expansion of the streams goes backward, its experts, or its attention."""
    kept = _kept(config, layer=layer, share=share, work=work)
    all_tokens = work.recompute != "within"
    inside = kept.rows if all_tokens else 0.0
    output = float(work.tokens * config.hidden_size * work.itemsize)
    # Of the last expansion: gradients of the streams and of the output, by blocks of tokens before they are joined.
    expansion = kept.moe + inside + streams_of(config, work) + output
    # The gradient of the streams has taken the place of the one that came in.
    experts = kept.moe + output + _experts(config, kept=kept.rows, share=share, work=work)
    attention = kept.queries + output + _attention(config, layer=layer, work=work)
    base = kept.attention + kept.copies + (kept.queries if all_tokens else 0.0)
    last = attention - (kept.queries if all_tokens else 0.0)
    return Parts(
        block=base + max(expansion, experts, last),
        pools=_pools(config, layer=layer, work=work),
        scores=_scores(config, layer=layer, work=work),
    )


def _kept(config: V4Config, *, layer: int, share: Share, work: Work) -> _Kept:
    n, s, w = work.tokens, work.itemsize, work.wide
    hidden, latent, width = config.hidden_size, config.q_lora_rank, config.head_dim
    experts, heads = config.moe_intermediate_size, config.num_attention_heads
    tokens = work.block_tokens if work.recompute == "within" else n
    # Collapsed, normed, put out; inputs and outputs of the latents' norms; the grouped outputs.
    attention = n * (3 * hidden + 2 * latent + 2 * width + config.o_groups * config.o_lora_rank) * s
    # Queries before their norm and as attended with; outputs as attended and turned back. Each block of queries joins
    # a table of all keys.
    tables = -(-tokens // work.block_tokens) * _table(config, layer=layer, work=work) * width * s
    queries = tokens * heads * (4 * width * s + w) + tables
    # Streams behind attention; collapsed, normed and wide for the router; the shared expert; what is put out.
    moe = n * ((config.hc_mult + 3) * hidden * s + hidden * w + 3 * experts * s)
    moe += n * config.n_routed_experts * (5 * w + 8)
    # The chosen experts' inputs, gate and up, their product, outputs.
    rows = tokens * config.num_experts_per_tok * (2 * hidden + 3 * experts) * s
    # What enters the first layer is one embedding seen K times: each function that reads it makes streams of it.
    enters = layer == 0 and share.is_first
    return _Kept(
        attention=float(attention),
        queries=float(queries),
        moe=float(moe),
        rows=float(rows),
        copies=3 * streams_of(config, work) * tokens / n if enters else 0.0,
    )


def _attention(config: V4Config, *, layer: int, work: Work) -> float:
    """Backward on b queries: two gradients of theirs at once, the keys' in float32, and the scratch of a launch.

    Scratch: weights and slopes of every column, and what is sent to pooled rows before it is added up.
    """
    s, w, width, heads = work.itemsize, work.wide, config.head_dim, config.num_attention_heads
    launch = min(work.tokens, _SCRATCH_TOKENS)
    rows = read_rows(config, layer=layer, work=work)
    columns = sum(-(-number // _ROUND) * _ROUND for number in (config.sliding_window, rows))
    sent = {"dense": 0, "csa": launch * rows * width * s, "hca": launch // 64 * rows * width * w}
    table = _table(config, layer=layer, work=work) * width * (w + s)
    scratch = 2 * launch * columns * heads * s + sent[config.kind(layer)]
    return float(2 * work.block_tokens * heads * width * s + table + scratch)


def _table(config: V4Config, *, layer: int, work: Work) -> int:
    """Rows: tokens and pooled ones."""
    ratio = config.compress_ratios[layer]
    return work.tokens + (max(work.tokens, work.longest) // ratio if ratio else 0)


def _experts(config: V4Config, *, kept: float, share: Share, work: Work) -> float:
    """Backward on b tokens: rows kept, gradients of theirs; and those of a stack of experts, added to what is there."""
    if share.expert_ranks > 1 or config.experts_have_fixed_shape:
        # No fast twin computes these.
        return experts_of(config, share=share, work=work)
    b, s = work.block_tokens, work.itemsize
    hidden, width = config.hidden_size, config.moe_intermediate_size
    rows = b * config.num_experts_per_tok * (hidden + 3 * width) * s
    stack = len(share.experts(config.n_routed_experts)) * 3 * width * hidden * s
    return float(kept + rows + stack * (work.tokens > b))


def _pools(config: V4Config, *, layer: int, work: Work) -> float:
    """Each compressor's values and gates, twice as wide with CSA's overlap."""
    kind = config.kind(layer)
    if kind == "dense":
        return 0.0
    learned = config.index_head_dim if config.index_kl_coef > 0 else 0
    channels = 2 * (config.head_dim + learned) if kind == "csa" else config.head_dim
    return float(2 * work.tokens * channels * work.itemsize)


def _scores(config: V4Config, *, layer: int, work: Work) -> float:
    """Picks, as they are and for the kernels; where the indexer learns, its queries, and six numbers a pick."""
    if config.kind(layer) != "csa":
        return 0.0
    n, s, w, picked = work.tokens, work.itemsize, work.wide, config.index_topk
    found = n * picked * (8 + 4)
    if config.index_kl_coef > 0:
        queries = config.index_n_heads * config.index_head_dim
        found += n * (queries * s + 6 * picked * w) + min(n, _SCRATCH_TOKENS) * picked * config.index_head_dim * s
    return float(found)
