"""V4Config: layer kinds, refusals, and reading the released and transformers' own config.json."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from v4model import ConfigError, V4Config, Yarn, presets

TINY = presets.tiny()
RELEASED: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "q_lora_rank": 24, "o_groups": 2,
    "index_topk": 4, "n_routed_experts": 8, "moe_intermediate_size": 24, "routed_scaling_factor": 1.5,
    "compress_ratios": [0, 4, 128, 0], "num_nextn_predict_layers": 1, "num_hash_layers": 2,
}  # fmt: skip
TRANSFORMERS: dict[str, Any] = {
    **{key: value for key, value in RELEASED.items() if key not in ("compress_ratios", "num_hash_layers")},
    "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
    "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128},
    "mlp_layer_types": ["hash_moe", "hash_moe", "moe"],
}


def changed(source: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """`source` with other values; None takes a key away."""
    return {key: value for key, value in {**source, **changes}.items() if value is not None}


def test_kinds_follow_the_ratios() -> None:
    config = dataclasses.replace(TINY, compress_ratios=(0, 4, 16, 128, 4, 2))
    assert [config.kind(layer) for layer in range(6)] == ["dense", "csa", "hca", "hca", "csa", "hca"]
    assert config.ratios == (2, 4, 16, 128)
    assert dataclasses.replace(TINY, compress_ratios=(0,) * 6).ratios == ()


def test_fixed_shape_experts_up_to_16_unless_told() -> None:
    few, many = (dataclasses.replace(TINY, n_routed_experts=count) for count in (16, 17))
    assert few.experts_have_fixed_shape
    assert not many.experts_have_fixed_shape
    assert dataclasses.replace(many, fixed_shape_experts=True).experts_have_fixed_shape
    assert not dataclasses.replace(few, fixed_shape_experts=False).experts_have_fixed_shape


def test_frozen_hashable_and_by_keyword_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TINY.vocab_size = 3  # type: ignore[misc]
    assert hash(TINY) == hash(presets.tiny())
    with pytest.raises(TypeError):
        V4Config(512)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "got", "expected"),
    [
        ({"compress_ratios": (0, 4)}, "2 compress_ratios", "num_hidden_layers + num_nextn_predict_layers = 6"),
        ({"compress_ratios": (0, 4, -1, 4, 0, 4)}, "compress_ratios (0, 4, -1", ">= 0"),
        ({"compress_ratios": (0, 4, 1, 4, 0, 4)}, "compress ratio 1", "> 1 (HCA)"),
        ({"qk_rope_head_dim": 7}, "qk_rope_head_dim 7", "an even number"),
        ({"qk_rope_head_dim": 18}, "qk_rope_head_dim 18", "head_dim = 16"),
        ({"index_head_dim": 4}, "index_head_dim 4", "at least qk_rope_head_dim = 8"),
        ({"o_groups": 3}, "o_groups 3", "a divisor of num_attention_heads = 4"),
        ({"o_groups": 0}, "o_groups 0", "at least 1"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok 9", "1 to n_routed_experts = 8"),
        ({"num_experts_per_tok": 0}, "num_experts_per_tok 0", "1 to n_routed_experts = 8"),
        ({"num_hash_layers": 5}, "num_hash_layers 5", "0 to num_hidden_layers = 4"),
        ({"num_nextn_predict_layers": -1, "compress_ratios": (0, 4, 16)}, "num_nextn_predict_layers -1", "at least 0"),
        *(
            ({name: 0}, f"{name} 0", "at least 1")
            for name in ("vocab_size", "hidden_size", "sliding_window", "index_topk", "hc_mult", "hc_sinkhorn_iters",
                         "loss_chunk_tokens", "attention_block_tokens")
        ),
        ({"hidden_size": 32.0}, "hidden_size 32.0", "a whole number"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps -1.0", "a finite number more than 0"),
        ({"swiglu_limit": float("inf")}, "swiglu_limit inf", "a finite number more than 0"),
        ({"balance_coef": float("nan")}, "balance_coef nan", "a finite number at least 0"),
        ({"mtp_scale": -0.1}, "mtp_scale -0.1", "a finite number at least 0"),
    ],
)  # fmt: skip
def test_sizes_that_do_not_fit_are_refused(changes: dict[str, Any], got: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        dataclasses.replace(TINY, **changes)
    assert got in caught.value.got
    assert expected in caught.value.expected
    assert caught.value.where == "V4Config"


def test_small_indexer_heads_are_fine_without_csa() -> None:
    assert dataclasses.replace(TINY, index_head_dim=4, compress_ratios=(0, 16, 16, 0, 0, 16)).index_head_dim == 4


@pytest.mark.parametrize(
    ("window", "ratio", "reach"), [(8, 0, 7), (8, 4, 7), (6, 4, 7), (9, 4, 8), (8, 16, 15), (1, 0, 0), (128, 128, 127)]
)
def test_reach_covers_the_window_and_the_tokens_of_a_pooled_row(window: int, ratio: int, reach: int) -> None:
    # A ratio-4 row that ends at a token reads it and the 7 before it; another ratio reads ratio - 1 before.
    assert dataclasses.replace(TINY, sliding_window=window, compress_ratios=(ratio,) * 6).reach(0) == reach


def test_layers_behind_the_trunk_are_mtp_blocks() -> None:
    assert [TINY.depth(layer) for layer in range(6)] == [0, 0, 0, 0, 1, 2]
    names = [TINY.block_name(layer) for layer in (0, 3, 4, 5)]
    assert names == ["trunk.layers.0", "trunk.layers.3", "mtp.0.block", "mtp.1.block"]


@pytest.mark.parametrize("source", [RELEASED, TRANSFORMERS], ids=["released", "transformers"])
def test_both_spellings_read_alike(source: dict[str, Any], tmp_path: Path) -> None:
    config = V4Config.from_hf(source)
    assert config.compress_ratios == (0, 4, 128, 0)
    assert (config.num_hash_layers, config.num_nextn_predict_layers) == (2, 1)
    assert config.rope_scaling is None
    file = tmp_path / "config.json"
    file.write_text(json.dumps(source))
    assert V4Config.from_hf(tmp_path) == V4Config.from_hf(str(file)) == config


def test_transformers_layer_types_leave_the_mtp_blocks_dense() -> None:
    config = V4Config.from_hf(changed(TRANSFORMERS, num_nextn_predict_layers=2))
    assert config.compress_ratios == (0, 4, 128, 0, 0)


def test_absent_keys_take_the_released_values() -> None:
    config = V4Config.from_hf(changed(RELEASED, num_nextn_predict_layers=None, num_hash_layers=None))
    assert (config.num_nextn_predict_layers, config.num_hash_layers) == (1, 3)
    assert (config.vocab_size, config.head_dim, config.qk_rope_head_dim, config.hc_mult) == (129280, 512, 64, 4)


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_theta": 1e4, "compress_rope_theta": 4e4, "qk_rope_head_dim": 64,
         "rope_scaling": {"type": "yarn", "factor": 8, "original_max_position_embeddings": 4096, "beta_fast": 16}},
        {"partial_rotary_factor": 0.125, "rope_parameters": {
            "main": {"rope_type": "default", "rope_theta": 1e4},
            "compress": {"rope_type": "yarn", "rope_theta": 4e4, "factor": 8, "original_max_position_embeddings": 4096,
                         "beta_fast": 16, "attention_factor": 1.0}}},
        {"rope_parameters": {
            "main": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.125},
            "compress": {"rope_type": "yarn", "rope_theta": 4e4, "factor": 8, "original_max_position_embeddings": 4096,
                         "beta_fast": 16, "partial_rotary_factor": 0.125}}},
    ],
    ids=["released", "transformers", "transformers, nested only"],
)  # fmt: skip
def test_rope_of_both_spellings(rope: dict[str, Any]) -> None:
    config = V4Config.from_hf({**RELEASED, **rope})
    assert (config.rope_theta, config.compress_rope_theta, config.qk_rope_head_dim) == (1e4, 4e4, 64)
    assert config.rope_scaling == Yarn(factor=8, original_max_position_embeddings=4096, beta_fast=16, beta_slow=1)


@pytest.mark.parametrize(
    ("source", "got", "where"),
    [
        (changed(RELEASED, hidden_size=None, o_groups=None), "no hidden_size, o_groups", "config"),
        (changed(RELEASED, compress_ratios=None), "neither", "config"),
        (changed(RELEASED, scoring_func="sigmoid"), "scoring_func = 'sigmoid'", "config"),
        (changed(RELEASED, num_key_value_heads=8), "num_key_value_heads = 8", "config"),
        (changed(RELEASED, tie_word_embeddings=True), "tie_word_embeddings = True", "config"),
        (changed(RELEASED, rope_scaling={"type": "linear", "factor": 2}), "rope type 'linear'", "rope_scaling"),
        (changed(TRANSFORMERS, layer_types=["full_attention"] * 3), "layer type 'full_attention'", "layer_types"),
        (changed(TRANSFORMERS, compress_rates={"compressed_sparse_attention": 8}), "a CSA rate of 8", "compress_rates"),
        (changed(TRANSFORMERS, mlp_layer_types=["moe", "hash_moe", "moe"]), "mlp_layer_types ['moe'", "config"),
        (changed(RELEASED, compress_ratios=[0, 4, 128, 0, 0]), "5 compress_ratios", "V4Config"),
        (changed(RELEASED, compress_ratios="0000"), "not supported between instances", "config"),
        (changed(RELEASED, rope_scaling=[1]), "'list' object has no attribute", "config"),
        (changed(RELEASED, num_hash_layers=[2]), "int() argument must be", "config"),
        (changed(RELEASED, hidden_size="32"), "hidden_size 32", "V4Config"),
    ],
)
def test_configs_of_other_models_are_refused(source: dict[str, Any], got: str, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        V4Config.from_hf(source)
    assert got in caught.value.got
    assert caught.value.where == where


@pytest.mark.parametrize(("content", "got"), [(None, "No such file"), ("{", "Expecting"), ("[1]", "list")])
def test_unreadable_files_are_named(tmp_path: Path, content: str | None, got: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError) as caught:
        V4Config.from_hf(tmp_path)
    assert got in caught.value.got
    assert caught.value.where == str(tmp_path / "config.json")
