"""Presets: parameters of the released models counted by hand, part by part, on the meta device."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from v4model import V4Config, V4Model, presets


@dataclass(frozen=True)
class Sizes:
    """The released sizes that differ between Flash and Pro, typed here and not read from the presets."""

    hidden: int
    heads: int
    q_lora: int
    groups: int
    experts: int
    expert_width: int
    kinds: tuple[int, int, int]  # trunk layers: dense, CSA, HCA
    trunk_total: float  # measured
    mtp_total: float  # measured


FLASH = Sizes(4096, 64, 1024, 8, 256, 2048, (2, 21, 20), 284.33e9, 6.61e9)
PRO = Sizes(7168, 128, 1536, 16, 384, 3072, (0, 30, 31), 1572.998e9, 25.84e9)
VOCAB, HEAD_DIM, O_LORA, INDEX_HEADS, INDEX_DIM, STREAMS = 129280, 512, 1024, 64, 128, 4

# The first pattern that fits decides.
PARTS = {
    "embedding": r"embed_tokens",
    "head": r"^lm_head",
    "indexer": r"\.indexer\.",
    "compressor": r"\.compressor\.",
    "mHC": r"_hc\.|hc_head",
    "router": r"\.gate\.",
    "shared expert": r"shared_experts",
    "experts": r"\.experts\.",
    "attention": r"self_attn",
    "MTP projections": r"[eh]_proj",
    "norms": r"norm",
}


def compressor(s: Sizes, *, width: int, ratio: int) -> int:
    """kv and gate projections, position bias, norm; ratio 4 projects twice the width."""
    projected = 2 * width if ratio == 4 else width
    return 2 * projected * s.hidden + ratio * projected + width


def by_hand(s: Sizes, *, kinds: tuple[int, int, int]) -> dict[str, int]:
    """What `kinds` blocks hold, part by part."""
    blocks, (_, csa, hca) = sum(kinds), kinds
    attention = s.hidden * s.q_lora + s.q_lora + s.q_lora * s.heads * HEAD_DIM  # query, low rank
    attention += s.hidden * HEAD_DIM + HEAD_DIM + s.heads  # the one latent and its norm; a sink a head
    attention += s.heads * HEAD_DIM * O_LORA + s.groups * O_LORA * s.hidden  # grouped output, low rank
    indexer = compressor(s, width=INDEX_DIM, ratio=4)
    indexer += s.q_lora * INDEX_HEADS * INDEX_DIM + s.hidden * INDEX_HEADS
    mixes = (2 + STREAMS) * STREAMS
    return {
        "attention": blocks * attention,
        "compressor": csa * compressor(s, width=HEAD_DIM, ratio=4) + hca * compressor(s, width=HEAD_DIM, ratio=128),
        "indexer": csa * indexer,
        "mHC": blocks * 2 * (mixes * STREAMS * s.hidden + mixes + 3) + STREAMS * STREAMS * s.hidden + STREAMS + 1,
        "router": blocks * s.experts * s.hidden,
        "experts": blocks * s.experts * 3 * s.expert_width * s.hidden,
        "shared expert": blocks * 3 * s.expert_width * s.hidden,
        "norms": blocks * 2 * s.hidden + s.hidden,
    }


def counted(model: V4Model) -> tuple[Counter[str], Counter[str]]:
    """Parameters of the trunk with embedding and head, and of MTP, by part."""
    trunk: Counter[str] = Counter()
    mtp: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        part = next(part for part, pattern in PARTS.items() if re.search(pattern, name))
        (mtp if name.startswith("mtp.") else trunk)[part] += parameter.numel()
    return trunk, mtp


@pytest.mark.parametrize(("preset", "sizes"), [(presets.flash, FLASH), (presets.pro, PRO)], ids=["flash", "pro"])
def test_parameters_of_the_released_models_by_part(preset: Any, sizes: Sizes) -> None:
    config = preset()
    kinds = Counter(config.kind(layer) for layer in range(config.num_hidden_layers))
    assert (kinds["dense"], kinds["csa"], kinds["hca"]) == sizes.kinds
    assert config.kind(config.num_hidden_layers) == "dense"  # the MTP block
    model = V4Model(config, dtype=torch.bfloat16, device="meta")
    trunk, mtp = counted(model)
    ends = {"embedding": VOCAB * sizes.hidden, "head": VOCAB * sizes.hidden}
    assert trunk == Counter({part: n for part, n in {**by_hand(sizes, kinds=sizes.kinds), **ends}.items() if n})
    joined = by_hand(sizes, kinds=(1, 0, 0))
    joined["norms"] += 2 * sizes.hidden  # enorm and hnorm
    joined["MTP projections"] = 2 * sizes.hidden**2
    assert mtp == Counter({part: n for part, n in joined.items() if n})
    assert trunk.total() == pytest.approx(sizes.trunk_total, rel=2e-5)
    assert mtp.total() == pytest.approx(sizes.mtp_total, rel=1e-3)
    tables = {name: tuple(buffer.shape) for name, buffer in model.named_buffers() if "tid2eid" in name}
    assert tables == {f"trunk.layers.{layer}.mlp.gate.tid2eid": (VOCAB, 6) for layer in range(3)}


FLASH_RELEASED: dict[str, Any] = {
    "model_type": "deepseek_v4", "vocab_size": 129280, "hidden_size": 4096, "num_hidden_layers": 43,
    "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 1024,
    "o_groups": 8, "o_lora_rank": 1024, "sliding_window": 128, "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],
    "index_n_heads": 64, "index_head_dim": 128, "index_topk": 512, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 6, "moe_intermediate_size": 2048, "routed_scaling_factor": 1.5, "num_hash_layers": 3,
    "scoring_func": "sqrtsoftplus", "norm_topk_prob": True, "swiglu_limit": 10.0, "hc_mult": 4,
    "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "rms_norm_eps": 1e-6, "rope_theta": 10000, "compress_rope_theta": 160000,
    "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536, "beta_fast": 32,
                     "beta_slow": 1},
    "num_nextn_predict_layers": 1, "max_position_embeddings": 1048576, "initializer_range": 0.02,
    "tie_word_embeddings": False, "attention_bias": False, "hidden_act": "silu", "torch_dtype": "bfloat16",
}  # fmt: skip
_OWN = ("compress_ratios", "num_hash_layers", "rope_theta", "compress_rope_theta", "rope_scaling", "qk_rope_head_dim")
FLASH_TRANSFORMERS: dict[str, Any] = {
    **{key: value for key, value in FLASH_RELEASED.items() if key not in _OWN},
    "layer_types": ["sliding_attention"] * 2
    + ["compressed_sparse_attention", "heavily_compressed_attention"] * 20
    + ["compressed_sparse_attention"],
    "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128},
    "mlp_layer_types": ["hash_moe"] * 3 + ["moe"] * 40,
    "partial_rotary_factor": 0.125,
    "rope_parameters": {
        "main": {"rope_type": "default", "rope_theta": 10000, "partial_rotary_factor": 0.125},
        "compress": {"rope_type": "yarn", "rope_theta": 160000, **FLASH_RELEASED["rope_scaling"]},
    },
}


@pytest.mark.parametrize("source", [FLASH_RELEASED, FLASH_TRANSFORMERS], ids=["released", "transformers"])
def test_flash_is_what_its_config_file_says(source: dict[str, Any], tmp_path: Path) -> None:
    assert V4Config.from_hf(source) == presets.flash()
    (tmp_path / "config.json").write_text(json.dumps(source))
    assert V4Config.from_hf(tmp_path) == presets.flash()


def test_tiny_holds_every_branch() -> None:
    config = presets.tiny()
    assert {config.kind(layer) for layer in range(4)} == {"dense", "csa", "hca"}
    assert [config.kind(layer) for layer in (4, 5)] == ["dense", "csa"]  # MTP kinds vary
    assert 0 < config.num_hash_layers < config.num_hidden_layers
    assert config.experts_have_fixed_shape
    assert config.index_kl_coef > 0


def test_three_kinds_has_the_released_window_ratios_and_streams() -> None:
    small, flash = presets.three_kinds(), presets.flash()
    assert [small.kind(layer) for layer in range(4)] == ["dense", "csa", "hca", "dense"]
    for name in ("sliding_window", "ratios", "hc_mult", "hc_sinkhorn_iters", "rope_scaling", "compress_rope_theta"):
        assert getattr(small, name) == getattr(flash, name), name
