"""A small model of the NumPy reading: every kind of layer, two MTP depths, and random weights for all of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from harness.subjects.numpy_reading import ReadingConfig

VOCABULARY, HIDDEN, Q_LORA, O_LORA, EXPERT_WIDTH = 19, 8, 6, 5, 7


def config_of(**changes: Any) -> ReadingConfig:
    """Four blocks and two MTP depths, every kind of layer among them."""
    values: dict[str, Any] = {
        "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 6, "qk_rope_head_dim": 4, "o_groups": 2,
        "sliding_window": 3, "compress_ratios": (0, 4, 5, 4, 0, 4), "index_n_heads": 3, "index_head_dim": 5,
        "index_topk": 2, "n_routed_experts": 6, "num_experts_per_tok": 2, "routed_scaling_factor": 1.5,
        "num_hash_layers": 1, "swiglu_limit": 0.8, "hc_mult": 3, "hc_sinkhorn_iters": 4, "hc_eps": 1e-6,
        "rms_norm_eps": 1e-6, "rope_theta": 1e4, "compress_rope_theta": 1.6e5, "num_nextn_predict_layers": 2,
        "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 8.0, "beta_slow": 1.0},
        "mtp_scale": 0.3, "balance_coef": 0.01, "index_kl_coef": 0.02, "vocab_size": VOCABULARY,
    }  # fmt: skip
    return ReadingConfig.from_mapping({**values, **changes})


def weights_of(config: ReadingConfig, seed: int = 0) -> dict[str, Any]:
    """Random weights of every name that `config` needs."""
    generator = np.random.default_rng(seed)
    weights: dict[str, Any] = {}
    d, streams = config.head_dim, config.hc_mult

    def add(prefix: str, shapes: dict[str, tuple[int, ...]]) -> None:
        for name, shape in shapes.items():
            spread = 1.0 / math.sqrt(shape[-1]) if len(shape) > 1 else 0.3
            middle = 1.0 if "norm" in name else 0.0
            weights[f"{prefix}.{name}"] = middle + spread * generator.standard_normal(shape)

    def add_head(prefix: str) -> None:
        fan_in = streams * HIDDEN
        add(prefix, {"hc_head.hc_fn": (streams, fan_in), "hc_head.hc_base": (streams,), "hc_head.hc_scale": (1,)})
        add(prefix, {"norm.weight": (HIDDEN,)})

    def add_compressor(prefix: str, width: int, ratio: int) -> None:
        wide = 2 * width if ratio == 4 else width
        add(prefix, {"kv_proj.weight": (wide, HIDDEN), "gate_proj.weight": (wide, HIDDEN)})
        add(prefix, {"position_bias": (ratio, wide), "kv_norm.weight": (width,)})

    def add_block(prefix: str, layer: int) -> None:
        mixes, heads, ratio = (2 + streams) * streams, config.num_attention_heads, config.compress_ratios[layer]
        for name in ("attn_hc", "ffn_hc"):
            add(f"{prefix}.{name}", {"fn": (mixes, streams * HIDDEN), "base": (mixes,), "scale": (3,)})
        add(prefix, {"input_layernorm.weight": (HIDDEN,), "post_attention_layernorm.weight": (HIDDEN,)})
        add(f"{prefix}.self_attn", {
            "q_a_proj.weight": (Q_LORA, HIDDEN), "q_a_norm.weight": (Q_LORA,), "q_b_proj.weight": (heads * d, Q_LORA),
            "kv_proj.weight": (d, HIDDEN), "kv_norm.weight": (d,), "sinks": (heads,),
            "o_a_proj.weight": (config.o_groups * O_LORA, heads * d // config.o_groups),
            "o_b_proj.weight": (HIDDEN, config.o_groups * O_LORA),
        })  # fmt: skip
        if ratio:
            add_compressor(f"{prefix}.self_attn.compressor", d, ratio)
        if ratio == 4:
            indexer, width = f"{prefix}.self_attn.compressor.indexer", config.index_head_dim
            add_compressor(indexer, width, ratio)
            add(indexer, {"q_b_proj.weight": (config.index_n_heads * width, Q_LORA)})
            add(indexer, {"scorer.weights_proj.weight": (config.index_n_heads, HIDDEN)})
        experts = config.n_routed_experts
        add(f"{prefix}.mlp", {
            "gate.weight": (experts, HIDDEN), "experts.gate_up_proj": (experts, 2 * EXPERT_WIDTH, HIDDEN),
            "experts.down_proj": (experts, HIDDEN, EXPERT_WIDTH),
            "shared_experts.gate_proj.weight": (EXPERT_WIDTH, HIDDEN),
            "shared_experts.up_proj.weight": (EXPERT_WIDTH, HIDDEN),
            "shared_experts.down_proj.weight": (HIDDEN, EXPERT_WIDTH),
        })  # fmt: skip
        if layer < config.num_hash_layers:
            table = [generator.permutation(experts)[: config.num_experts_per_tok] for _ in range(VOCABULARY)]
            weights[f"{prefix}.mlp.gate.tid2eid"] = np.stack(table)
        else:
            add(f"{prefix}.mlp", {"gate.e_score_correction_bias": (experts,)})

    add("model", {"embed_tokens.weight": (VOCABULARY, HIDDEN)})
    add("lm_head", {"weight": (VOCABULARY, HIDDEN)})
    add_head("model")
    for layer in range(config.num_hidden_layers):
        add_block(f"model.layers.{layer}", layer)
    for k in range(config.num_nextn_predict_layers):
        add_block(f"mtp.{k}", config.num_hidden_layers + k)
        add_head(f"mtp.{k}")
        add(f"mtp.{k}", {"e_proj.weight": (HIDDEN, HIDDEN), "h_proj.weight": (HIDDEN, HIDDEN)})
        add(f"mtp.{k}", {"enorm.weight": (HIDDEN,), "hnorm.weight": (HIDDEN,)})
    return weights


def some_tokens(length: int, seed: int = 1) -> list[int]:
    """`length` token ids of the small vocabulary."""
    return [int(token) for token in np.random.default_rng(seed).integers(0, VOCABULARY, length)]
