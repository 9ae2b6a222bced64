"""Weights in and out: both spellings, folders and shards, and refusals that copy nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
import torch
from safetensors.torch import load_file

from suites.v4model.support import stirred
from v4model import V4Model, WeightError, hf, presets
from v4model.layers.share import Share

Names = Literal["transformers", "released"]
CONFIG = presets.tiny()
SPELLINGS = pytest.mark.parametrize("names", ["transformers", "released"])

# The same tensor in ours, transformers' and the released spelling.
NAMES = [
    ("trunk.embed_tokens.weight", "model.embed_tokens.weight", "embed.weight"),
    ("lm_head.weight", "lm_head.weight", "head.weight"),
    ("trunk.norm.weight", "model.norm.weight", "norm.weight"),
    ("trunk.hc_head.hc_fn", "model.hc_head.hc_fn", "hc_head_fn"),
    ("trunk.layers.0.self_attn.q_a_proj.weight", "model.layers.0.self_attn.q_a_proj.weight",
     "layers.0.attn.wq_a.weight"),
    ("trunk.layers.0.self_attn.q_a_norm.weight", "model.layers.0.self_attn.q_a_norm.weight",
     "layers.0.attn.q_norm.weight"),
    ("trunk.layers.0.self_attn.kv_proj.weight", "model.layers.0.self_attn.kv_proj.weight", "layers.0.attn.wkv.weight"),
    ("trunk.layers.0.self_attn.kv_norm.weight", "model.layers.0.self_attn.kv_norm.weight",
     "layers.0.attn.kv_norm.weight"),
    ("trunk.layers.0.self_attn.o_a_proj.weight", "model.layers.0.self_attn.o_a_proj.weight",
     "layers.0.attn.wo_a.weight"),
    ("trunk.layers.0.self_attn.sinks", "model.layers.0.self_attn.sinks", "layers.0.attn.attn_sink"),
    ("trunk.layers.0.attn_hc.fn", "model.layers.0.attn_hc.fn", "layers.0.hc_attn_fn"),
    ("trunk.layers.0.ffn_hc.scale", "model.layers.0.ffn_hc.scale", "layers.0.hc_ffn_scale"),
    ("trunk.layers.0.input_layernorm.weight", "model.layers.0.input_layernorm.weight", "layers.0.attn_norm.weight"),
    ("trunk.layers.0.mlp.gate.tid2eid", "model.layers.0.mlp.gate.tid2eid", "layers.0.ffn.gate.tid2eid"),
    ("trunk.layers.1.mlp.gate.e_score_correction_bias", "model.layers.1.mlp.gate.e_score_correction_bias",
     "layers.1.ffn.gate.bias"),
    ("trunk.layers.1.mlp.shared_experts.down_proj.weight", "model.layers.1.mlp.shared_experts.down_proj.weight",
     "layers.1.ffn.shared_experts.w2.weight"),
    ("trunk.layers.1.self_attn.compressor.gate_proj.weight", "model.layers.1.self_attn.compressor.gate_proj.weight",
     "layers.1.attn.compressor.wgate.weight"),
    ("trunk.layers.1.self_attn.compressor.kv_norm.weight", "model.layers.1.self_attn.compressor.kv_norm.weight",
     "layers.1.attn.compressor.norm.weight"),
    ("trunk.layers.1.self_attn.indexer.compressor.position_bias",
     "model.layers.1.self_attn.compressor.indexer.position_bias", "layers.1.attn.indexer.compressor.ape"),
    ("trunk.layers.1.self_attn.indexer.q_b_proj.weight", "model.layers.1.self_attn.compressor.indexer.q_b_proj.weight",
     "layers.1.attn.indexer.wq_b.weight"),
    ("trunk.layers.1.self_attn.indexer.weights_proj.weight",
     "model.layers.1.self_attn.compressor.indexer.scorer.weights_proj.weight",
     "layers.1.attn.indexer.weights_proj.weight"),
    ("mtp.0.e_proj.weight", "mtp.0.e_proj.weight", "mtp.0.e_proj.weight"),
    ("mtp.0.hnorm.weight", "mtp.0.hnorm.weight", "mtp.0.hnorm.weight"),
    ("mtp.0.hc_head.hc_fn", "mtp.0.hc_head.hc_fn", "mtp.0.hc_head_fn"),
    ("mtp.1.block.self_attn.sinks", "mtp.1.self_attn.sinks", "mtp.1.attn.attn_sink"),
    ("mtp.1.block.mlp.gate.weight", "mtp.1.mlp.gate.weight", "mtp.1.ffn.gate.weight"),
]  # fmt: skip


def values(model: V4Model) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def model() -> V4Model:
    return stirred(CONFIG, dtype=torch.float32, seed=1)


@pytest.fixture
def other() -> V4Model:
    return V4Model(CONFIG, dtype=torch.float32, seed=2)


def test_names_of_both_spellings(model: V4Model) -> None:
    ours, transformers, released = (
        model.state_dict(), hf.export(model), hf.export(model, names="released"),
    )  # fmt: skip
    for own, theirs, short in NAMES:
        assert torch.equal(ours[own], transformers[theirs]), theirs
        assert torch.equal(ours[own], released[short]), short
    assert len(transformers) == len(ours)
    blocks, stacked = 6, 2
    assert len(released) == len(ours) + blocks * (3 * CONFIG.n_routed_experts - stacked)
    gate_up, down = (ours[f"trunk.layers.2.mlp.experts.{name}"] for name in ("gate_up_proj", "down_proj"))
    for expert in range(CONFIG.n_routed_experts):
        w1, w2, w3 = (released[f"layers.2.ffn.experts.{expert}.w{i}.weight"] for i in (1, 2, 3))
        assert torch.equal(torch.cat([w1, w3]), gate_up[expert])
        assert torch.equal(w2, down[expert])
    left = [n for n in released if re.search(r"_proj\.|self_attn|mlp\.|layernorm|trunk|block|position_bias|sinks", n)]
    assert [n for n in left if "weights_proj" not in n and not re.search(r"mtp\.\d\.[eh]_proj", n)] == []


@SPELLINGS
@pytest.mark.parametrize("shard_bytes", [2**30, 60_000], ids=["one file", "shards"])
def test_folder_round_trip(model: V4Model, other: V4Model, names: Names, shard_bytes: int, tmp_path: Path) -> None:
    hf.save(model, tmp_path, names=names, shard_bytes=shard_bytes)
    files = {file.name for file in tmp_path.iterdir()}
    assert ("model.safetensors" in files) == (shard_bytes > 60_000)
    if shard_bytes == 60_000:
        index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
        assert index["metadata"]["total_size"] == sum(t.nbytes for t in model.state_dict().values())
        assert set(index["weight_map"].values()) == files - {"model.safetensors.index.json"}
        assert len(files) > 5
        sizes = [
            sum(t.nbytes for t in load_file(tmp_path / file).values()) for file in set(index["weight_map"].values())
        ]
        largest = max(t.nbytes for t in hf.export(model, names=names).values())
        assert max(sizes) <= max(60_000, largest)
    assert not same(values(other), values(model))
    hf.load(other, tmp_path)
    assert same(values(other), values(model))


@SPELLINGS
def test_state_dict_and_single_file_round_trip(model: V4Model, other: V4Model, names: Names, tmp_path: Path) -> None:
    hf.load(other, hf.export(model, names=names))
    assert same(values(other), values(model))
    hf.save(model, tmp_path, names=names)
    third = V4Model(CONFIG, seed=3)
    hf.load(third, tmp_path / "model.safetensors")
    assert same(values(third), values(model))


def test_values_are_rounded_to_the_models_dtypes(model: V4Model) -> None:
    low = V4Model(CONFIG, dtype=torch.bfloat16, seed=2)
    hf.load(low, hf.export(model))
    assert torch.equal(low.lm_head.weight, model.lm_head.weight.bfloat16())
    assert torch.equal(low.trunk.norm.weight, model.trunk.norm.weight)  # stays float32


def test_a_later_save_replaces_an_earlier_one(model: V4Model, other: V4Model, tmp_path: Path) -> None:
    hf.save(other, tmp_path, shard_bytes=60_000)
    hf.save(model, tmp_path)
    hf.load(other, tmp_path)
    assert same(values(other), values(model))


def refused(model: V4Model, source: object) -> WeightError:
    """The error of a load that must copy nothing."""
    before = values(model)
    with pytest.raises(WeightError) as caught:
        hf.load(model, source)  # type: ignore[arg-type]
    assert same(values(model), before), "something was copied"
    return caught.value


@SPELLINGS
@pytest.mark.parametrize("line", [0, 1, 5, 18, 22])
def test_missing_tensor_is_named(model: V4Model, other: V4Model, names: Names, line: int) -> None:
    name = NAMES[line][1 if names == "transformers" else 2]
    weights = hf.export(model, names=names)
    del weights[name]
    error = refused(other, weights)
    assert error.got == f"no {name}"
    assert error.expected == f"exactly the model's {len(weights) + 1} tensors"


@SPELLINGS
def test_unexpected_tensor_is_named(model: V4Model, other: V4Model, names: Names) -> None:
    weights = {**hf.export(model, names=names), "layers.9.stray": torch.zeros(1)}
    if names == "transformers":
        weights["model.layers.9.stray"] = weights.pop("layers.9.stray")
    assert refused(other, weights).got in ("unexpected layers.9.stray", "unexpected model.layers.9.stray")


@SPELLINGS
def test_misshapen_tensor_is_named(model: V4Model, other: V4Model, names: Names) -> None:
    weights = hf.export(model, names=names)
    name = NAMES[21][1]
    weights[name] = weights[name][:, :-1]
    error = refused(other, weights)
    assert (error.got, error.expected) == (f"{name} of shape [32, 31]", "[32, 32]")


def test_another_depth_of_mtp_is_refused(model: V4Model) -> None:
    shallow = V4Model(presets.three_kinds())
    error = refused(shallow, hf.export(model))
    assert "unexpected" in error.got


DAMAGE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "truncated file": (
        lambda f: (f / "model-00002-of-00003.safetensors").write_bytes(
            (f / "model-00002-of-00003.safetensors").read_bytes()[:-100]
        ), "", "model-00002-of-00003.safetensors",
    ),
    "index names a missing file": (
        lambda f: (f / "model-00003-of-00003.safetensors").unlink(), "No such file", "model-00003-of-00003.safetensors",
    ),
    "index is not JSON": (
        lambda f: (f / "model.safetensors.index.json").write_text("{"), "Decode", "model.safetensors.index.json",
    ),
    "index without a map": (
        lambda f: (f / "model.safetensors.index.json").write_text("{}"), "weight_map", "model.safetensors.index.json",
    ),
    "map to a number": (
        lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": 3}}'), "TypeError",
        "model.safetensors.index.json",
    ),
    "map is a list": (
        lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": []}'), "values",
        "model.safetensors.index.json",
    ),
    "no index and no single file": (lambda f: (f / "model.safetensors.index.json").unlink(), "neither", ""),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "got", "where"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_folder_is_refused_by_file(
    model: V4Model, other: V4Model, tmp_path: Path, damage: Callable[[Path], object], got: str, where: str
) -> None:
    hf.save(model, tmp_path, shard_bytes=sum(t.nbytes for t in model.state_dict().values()) * 2 // 5)
    damage(tmp_path)
    error = refused(other, tmp_path)
    assert got in error.got
    assert error.where.endswith(where)
    assert str(tmp_path) in error.where


def test_a_tensor_in_two_shards_is_refused(model: V4Model, other: V4Model, tmp_path: Path) -> None:
    hf.save(model, tmp_path)
    (tmp_path / "copy.safetensors").write_bytes((tmp_path / "model.safetensors").read_bytes())
    index = {"weight_map": {"a": "model.safetensors", "b": "copy.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert refused(other, tmp_path).got.endswith(" twice")


@pytest.mark.parametrize(
    ("table", "got"),
    [(8, "experts 8 to 8"), (-1, "experts -1 to -1"), (1.5, "of dtype torch.float32")],
)
def test_a_hash_table_of_other_experts_is_refused(model: V4Model, other: V4Model, table: float, got: str) -> None:
    tensors = hf.export(model)
    name = next(name for name in tensors if name.endswith("tid2eid"))
    before = values(other)
    assert got in refused(other, {**tensors, name: torch.full(tensors[name].shape, table)}).got
    assert same(values(other), before)


def test_unknown_spelling_is_refused(model: V4Model) -> None:
    with pytest.raises(WeightError, match="names='megatron'"):
        hf.export(model, names="megatron")  # type: ignore[arg-type]


@pytest.mark.parametrize("names", ["transformers", "released"])
@pytest.mark.parametrize(
    "share",
    [Share(stage=1, stages=2), Share(expert_rank=1, expert_ranks=2), Share(stages=2, expert_rank=1, expert_ranks=4)],
    ids=["stage", "experts", "both"],
)
def test_a_share_takes_its_part_of_the_whole_models_weights(names: str, share: Share) -> None:
    config = presets.tiny()
    whole, part = V4Model(config, seed=1), V4Model(config, seed=2, share=share)
    hf.load(part, hf.export(whole, names=names))
    for name, tensor in V4Model(config, seed=1, share=share).state_dict().items():
        assert torch.equal(part.state_dict()[name], tensor), name


def test_experts_of_a_share_keep_their_numbers() -> None:
    config = presets.tiny()
    whole, part = (V4Model(config, seed=1, share=share) for share in (Share(), Share(expert_rank=1, expert_ranks=2)))
    everything, own = hf.export(whole, names="released"), hf.export(part, names="released")
    numbers = {int(name.split(".experts.")[1].split(".")[0]) for name in own if ".experts." in name}
    assert numbers == {4, 5, 6, 7}
    assert all(torch.equal(tensor, everything[name]) for name, tensor in own.items())
    with pytest.raises(WeightError, match="got 4 of 8 experts; expected all"):
        hf.export(part, names="transformers")
    with pytest.raises(WeightError, match=r"got no layers.0.ffn.experts.0.w1.weight"):
        hf.load(V4Model(config, share=Share(expert_ranks=2)), own)
