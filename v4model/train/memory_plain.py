"""What a recomputed block holds with the plain operations; letters as in `v4model.train.memory`."""

from __future__ import annotations

from v4model.config import V4Config
from v4model.layers.share import Share
from v4model.train.work import Parts, Work, read_rows


def block_of(config: V4Config, *, layer: int, share: Share, work: Work) -> Parts:
    """What one recomputed block holds at the worse of its two ends.

    All of it, while its last expansion of the streams goes backward and while its experts do; later its attention
    alone, on a block of queries. Each holds what the part keeps for all n tokens, and the work on b of them.
    """
    n, s, w = work.tokens, work.itemsize, work.wide
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
                attention + moe + max(expansion, experts_of(config, share=share, work=work), mixing),
                attention + max(_attention(config, layer=layer, work=work), mixing),
            )
        ),
        pools=_pools(config, layer=layer, work=work),
        scores=_scores(config, layer=layer, work=work),
    )


def _attention(config: V4Config, *, layer: int, work: Work) -> float:
    """b queries: keys as gathered with their row and mask, softmax wide and rounded, q and outputs (wide, rounded)."""
    s, w, b = work.itemsize, work.wide, work.block_tokens
    columns = config.sliding_window + read_rows(config, layer=layer, work=work)
    heads, width = config.num_attention_heads, config.head_dim
    return float(b * (columns * (width * s + heads * (w + s) + 9) + heads * width * (w + 4 * s)))


def experts_of(config: V4Config, *, share: Share, work: Work) -> float:
    """The chosen experts' rows: four of D, six of the experts' width; of b tokens, or on expert ranks of all n.

    There as many rows are taken to come as go, and two more of D travel. Later, when the rows are gone, the gradients
    of a stack of experts: one by one, joined, and behind the first block of tokens added to those that are there.
    """
    s, hidden, width = work.itemsize, config.hidden_size, config.moe_intermediate_size
    b = work.block_tokens
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
    return float(6 * work.block_tokens * config.hc_mult * config.hidden_size * work.wide)


def _pools(config: V4Config, *, layer: int, work: Work) -> float:
    """Each compressor: values and softmax of its windows' slots; with CSA's overlap every token is in two of them."""
    kind, s, w = config.kind(layer), work.itemsize, work.wide
    if kind == "dense":
        return 0.0
    channels = 2 * (config.head_dim + config.index_head_dim) if kind == "csa" else config.head_dim
    return float(work.tokens * channels * (s + w))


def _scores(config: V4Config, *, layer: int, work: Work) -> float:
    """The indexer: queries, picks and their scores; and, for a block of queries, keys and scores of all in sight."""
    if config.kind(layer) != "csa":
        return 0.0
    s, w, n = work.itemsize, work.wide, work.tokens
    heads, width, picked = config.index_n_heads, config.index_head_dim, config.index_topk
    sight = work.longest // config.compress_ratios[layer]
    queries = min(n, config.attention_block_tokens)
    return float(n * (2 * heads * width * s + picked * (8 + w)) + queries * sight * (width * (s + w) + 2 * heads * w))
