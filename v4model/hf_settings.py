"""A configuration as transformers writes it down: the keyword arguments of its DeepseekV4Config."""

from __future__ import annotations

from typing import Any

from v4model.config import V4Config
from v4model.errors import ConfigError

_LAYER_TYPES = {
    "dense": "sliding_attention",
    "csa": "compressed_sparse_attention",
    "hca": "heavily_compressed_attention",
}

# Sizes and constants that both configurations call by one name.
_SAME = (
    "vocab_size hidden_size num_hidden_layers num_attention_heads head_dim q_lora_rank o_groups o_lora_rank "
    "sliding_window index_n_heads index_head_dim index_topk n_routed_experts num_experts_per_tok "
    "moe_intermediate_size routed_scaling_factor swiglu_limit hc_mult hc_sinkhorn_iters hc_eps rms_norm_eps "
    "rope_theta compress_rope_theta"
).split()


def transformers_settings(config: V4Config) -> dict[str, Any]:
    """The keyword arguments of transformers' DeepseekV4Config that describe the trunk of `config`.

    Raises:
        ConfigError: HCA layers of several ratios, for which transformers has only one number.
    """
    ratios = config.compress_ratios[: config.num_hidden_layers]
    heavy = sorted({ratio for layer, ratio in enumerate(ratios) if config.kind(layer) == "hca"})
    if len(heavy) > 1:
        raise ConfigError(got=f"HCA ratios {heavy}", expected="one ratio", where="the trunk, for transformers")
    hashed = config.num_hash_layers
    # The rotary width has no field of its own: it is a share of head_dim, in each of the two rope settings.
    share = {"partial_rotary_factor": config.qk_rope_head_dim / config.head_dim}
    compress: dict[str, Any] = {"rope_type": "default", "rope_theta": config.compress_rope_theta, **share}
    longest = config.max_position_embeddings
    if (yarn := config.rope_scaling) is not None:
        # Left out, attention_factor would be derived from the factor and scale cos and sin.
        compress |= {"rope_type": "yarn", "factor": yarn.factor, "attention_factor": 1.0}
        compress |= {"original_max_position_embeddings": yarn.original_max_position_embeddings}
        compress |= {"beta_fast": yarn.beta_fast, "beta_slow": yarn.beta_slow}
        # Unused where a factor is given, but it logs a complaint if the two disagree.
        longest = int(yarn.factor * yarn.original_max_position_embeddings)
    return {
        **{name: getattr(config, name) for name in _SAME},
        **share,
        "max_position_embeddings": longest,
        "layer_types": [_LAYER_TYPES[config.kind(layer)] for layer in range(config.num_hidden_layers)],
        "compress_rates": {_LAYER_TYPES["csa"]: 4, _LAYER_TYPES["hca"]: heavy[0] if heavy else 128},
        "mlp_layer_types": ["hash_moe"] * hashed + ["moe"] * (config.num_hidden_layers - hashed),
        "rope_parameters": {
            "main": {"rope_type": "default", "rope_theta": config.rope_theta, **share},
            "compress": compress,
        },
        "use_cache": False,
    }
