"""Ready configurations: two small ones that hold every branch on a CPU, and the two released ones."""

from __future__ import annotations

from v4model.config import V4Config, Yarn
from v4model.errors import ConfigError

_RELEASED_YARN = Yarn(factor=16.0, original_max_position_embeddings=65536)


def tiny() -> V4Config:
    """All three attention kinds, hash and learned routers, two MTP depths of different kinds; runs in milliseconds.

    The released vocabulary of 129,280 costs 25 times as much on a CPU, so V is 512 and callers fold real ids.
    """
    return V4Config(
        vocab_size=512,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        head_dim=16,
        qk_rope_head_dim=8,
        q_lora_rank=24,
        o_groups=2,
        o_lora_rank=12,
        sliding_window=8,
        compress_ratios=(0, 4, 16, 4, 0, 4),
        index_n_heads=4,
        index_head_dim=16,
        index_topk=4,
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        routed_scaling_factor=1.5,
        num_hash_layers=1,
        hc_mult=3,
        hc_sinkhorn_iters=3,
        rope_scaling=Yarn(factor=4.0, original_max_position_embeddings=64),
        num_nextn_predict_layers=2,
        max_position_embeddings=4096,
        initializer_range=0.15,
        mtp_scale=0.3,
        balance_coef=1e-2,
        index_kl_coef=1e-2,
    )


def three_kinds() -> V4Config:
    """One layer of each kind with the released window, ratios, streams and Sinkhorn iterations, and small widths."""
    return V4Config(
        vocab_size=512,
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=8,
        head_dim=32,
        qk_rope_head_dim=8,
        q_lora_rank=32,
        o_groups=4,
        o_lora_rank=16,
        compress_ratios=(0, 4, 128, 0),
        index_n_heads=32,
        index_head_dim=16,
        index_topk=16,
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=48,
        routed_scaling_factor=1.5,
        num_hash_layers=1,
        rope_scaling=_RELEASED_YARN,
        initializer_range=0.1,
        balance_coef=1e-3,
        index_kl_coef=1e-2,
    )


def flash() -> V4Config:
    """DeepSeek-V4-Flash: 43 layers (2 dense, 21 CSA, 20 HCA) and one dense MTP block."""
    return V4Config(
        hidden_size=4096,
        num_hidden_layers=43,
        num_attention_heads=64,
        q_lora_rank=1024,
        o_groups=8,
        compress_ratios=(0, 0, *(4, 128) * 20, 4, 0),
        index_topk=512,
        n_routed_experts=256,
        moe_intermediate_size=2048,
        routed_scaling_factor=1.5,
        rope_scaling=_RELEASED_YARN,
    )


def pro() -> V4Config:
    """DeepSeek-V4-Pro: 61 layers (30 CSA, 31 HCA) and one dense MTP block."""
    return V4Config(
        hidden_size=7168,
        num_hidden_layers=61,
        num_attention_heads=128,
        q_lora_rank=1536,
        o_groups=16,
        compress_ratios=(128, 128, *(4, 128) * 29, 4, 0),
        index_topk=1024,
        n_routed_experts=384,
        moe_intermediate_size=3072,
        routed_scaling_factor=2.5,
        rope_scaling=_RELEASED_YARN,
    )


def named(name: str) -> V4Config:
    """The preset of a name. Raises ConfigError for one that is not there."""
    known = {make.__name__: make for make in (tiny, three_kinds, flash, pro)}
    if name not in known:
        raise ConfigError(got=f"preset {name!r}", expected=f"one of {', '.join(known)}", where="presets")
    return known[name]()
