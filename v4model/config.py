"""V4Config: every size and constant of a DeepSeek-V4 model, under the released config.json's names."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from v4model.errors import ConfigError

Kind = Literal["dense", "csa", "hca"]

CSA_RATIO = 4
_AT_LEAST_1 = (
    "vocab_size hidden_size num_hidden_layers num_attention_heads head_dim q_lora_rank o_groups o_lora_rank "
    "sliding_window index_n_heads index_head_dim index_topk n_routed_experts moe_intermediate_size hc_mult "
    "hc_sinkhorn_iters loss_chunk_tokens attention_block_tokens"
).split()
_POSITIVE = "swiglu_limit hc_eps rms_norm_eps rope_theta compress_rope_theta routed_scaling_factor".split()
_NOT_NEGATIVE = "initializer_range mtp_scale balance_coef index_kl_coef router_bias_rate".split()
_LAYER_TYPE_KINDS: dict[str, Kind] = {
    "sliding_attention": "dense",
    "compressed_sparse_attention": "csa",
    "heavily_compressed_attention": "hca",
}


@dataclass(frozen=True, kw_only=True)
class Yarn:
    """YaRN frequency scaling of the compressed layers' RoPE (cos and sin are never scaled)."""

    factor: float
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    def __post_init__(self) -> None:
        for name in ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(
                    got=f"{name} {getattr(self, name)}", expected="a finite number more than 0", where="Yarn"
                )


@dataclass(frozen=True, kw_only=True)
class V4Config:
    """Sizes and constants of one model (paper section 2; released config.json names).

    `compress_ratios` has one entry a trunk layer, then one an MTP block: 0 is dense (sliding window only), 4 is CSA,
    any other ratio is HCA. The last block of fields steers training and evaluation, not the function computed.

    Raises:
        ConfigError: sizes that do not fit together.
    """

    vocab_size: int = 129280
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int = 512
    qk_rope_head_dim: int = 64
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int = 1024
    sliding_window: int = 128
    compress_ratios: tuple[int, ...]
    index_n_heads: int = 64
    index_head_dim: int = 128
    index_topk: int
    n_routed_experts: int
    num_experts_per_tok: int = 6
    moe_intermediate_size: int
    routed_scaling_factor: float
    num_hash_layers: int = 3
    swiglu_limit: float = 10.0
    hc_mult: int = 4
    hc_sinkhorn_iters: int = 20
    hc_eps: float = 1e-6
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    compress_rope_theta: float = 160000.0
    rope_scaling: Yarn | None = None
    num_nextn_predict_layers: int = 1
    max_position_embeddings: int = 1048576
    initializer_range: float = 0.02

    mtp_scale: float = 0.3
    balance_coef: float = 1e-4
    index_kl_coef: float = 0.0
    router_bias_rate: float = 1e-3
    fixed_shape_experts: bool | None = None
    """Run every expert on every token, so that no shape depends on routing; None: up to 16 experts."""
    loss_chunk_tokens: int = 1024
    attention_block_tokens: int = 512

    def __post_init__(self) -> None:
        for name, least in (*((name, 1) for name in _AT_LEAST_1), ("num_nextn_predict_layers", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                expected = f"a whole number of at least {least}"
                raise ConfigError(got=f"{name} {value}", expected=expected, where="V4Config")
        for names, expected in ((_POSITIVE, "more than 0"), (_NOT_NEGATIVE, "at least 0")):
            for name in names:
                value = getattr(self, name)
                if not (0 < value < math.inf or (value == 0 and names is _NOT_NEGATIVE)):
                    raise ConfigError(got=f"{name} {value}", expected=f"a finite number {expected}", where="V4Config")
        layers = self.num_hidden_layers + self.num_nextn_predict_layers
        checks = [
            (
                len(self.compress_ratios) == layers,
                f"{len(self.compress_ratios)} compress_ratios",
                f"num_hidden_layers + num_nextn_predict_layers = {layers} entries",
            ),
            (min(self.compress_ratios, default=0) >= 0, f"compress_ratios {self.compress_ratios}", "ratios >= 0"),
            (1 not in self.compress_ratios, "compress ratio 1", "0 (dense), 4 (CSA) or another ratio > 1 (HCA)"),
            (
                0 < self.qk_rope_head_dim <= self.head_dim and self.qk_rope_head_dim % 2 == 0,
                f"qk_rope_head_dim {self.qk_rope_head_dim}",
                f"an even number in (0, head_dim = {self.head_dim}]",
            ),
            (
                CSA_RATIO not in self.compress_ratios or self.qk_rope_head_dim <= self.index_head_dim,
                f"index_head_dim {self.index_head_dim}",
                f"at least qk_rope_head_dim = {self.qk_rope_head_dim}",
            ),
            (
                self.num_attention_heads % self.o_groups == 0,
                f"o_groups {self.o_groups}",
                f"a divisor of num_attention_heads = {self.num_attention_heads}",
            ),
            (
                0 < self.num_experts_per_tok <= self.n_routed_experts,
                f"num_experts_per_tok {self.num_experts_per_tok}",
                f"1 to n_routed_experts = {self.n_routed_experts}",
            ),
            (
                0 <= self.num_hash_layers <= self.num_hidden_layers,
                f"num_hash_layers {self.num_hash_layers}",
                f"0 to num_hidden_layers = {self.num_hidden_layers}",
            ),
        ]
        for fine, got, expected in checks:
            if not fine:
                raise ConfigError(got=got, expected=expected, where="V4Config")

    def kind(self, layer: int) -> Kind:
        """Attention kind of trunk layer `layer`, or of MTP block `layer - num_hidden_layers`."""
        ratio = self.compress_ratios[layer]
        return "dense" if ratio == 0 else "csa" if ratio == CSA_RATIO else "hca"

    def reach(self, layer: int) -> int:
        """How many tokens before its own a rank needs in trunk layer `layer` (or the MTP block behind the trunk).

        The window looks back window - 1; a complete window that ends at the first own token began ratio - 1 before it,
        and with CSA's overlap 2 * ratio - 1.
        """
        ratio = self.compress_ratios[layer]
        return max(self.sliding_window - 1, (2 * ratio if ratio == CSA_RATIO else ratio) - 1)

    def depth(self, layer: int) -> int:
        """0 for trunk layers, k for the block of MTP depth k."""
        return max(layer - self.num_hidden_layers + 1, 0)

    def block_name(self, layer: int) -> str:
        """ "trunk.layers.3", or "mtp.0.block" for the blocks behind the trunk."""
        past = layer - self.num_hidden_layers
        return f"trunk.layers.{layer}" if past < 0 else f"mtp.{past}.block"

    @property
    def ratios(self) -> tuple[int, ...]:
        """The distinct compression ratios > 0, ascending."""
        return tuple(sorted({ratio for ratio in self.compress_ratios if ratio}))

    @property
    def experts_have_fixed_shape(self) -> bool:
        if self.fixed_shape_experts is None:
            return self.n_routed_experts <= 16
        return self.fixed_shape_experts

    @classmethod
    def from_hf(cls, source: Mapping[str, Any] | str | Path) -> V4Config:
        """Reads the released config.json's keys, or transformers' own, from a mapping, a file or a model folder.

        Raises:
            ConfigError: an unreadable file, a missing key, or a value that no V4 model has.
        """
        data = source if isinstance(source, Mapping) else _read_json(Path(source))
        try:
            return cls(**_fields_from_hf(data))
        except (TypeError, AttributeError) as error:  # a text where a number stands, a list where an object does
            raise ConfigError(got=str(error), expected="values of config.json's own types", where="config") from error


def _read_json(path: Path) -> Mapping[str, Any]:
    file = path / "config.json" if path.is_dir() else path
    try:
        data = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(got=str(error), expected="a readable config.json", where=str(file)) from error
    if not isinstance(data, dict):
        raise ConfigError(got=type(data).__name__, expected="a JSON object", where=str(file))
    return data


_REQUIRED = (
    "hidden_size num_hidden_layers num_attention_heads q_lora_rank o_groups index_topk n_routed_experts "
    "moe_intermediate_size routed_scaling_factor"
).split()
_OPTIONAL = (
    "vocab_size head_dim o_lora_rank sliding_window index_n_heads index_head_dim num_experts_per_tok "
    "swiglu_limit hc_mult hc_sinkhorn_iters hc_eps rms_norm_eps rope_theta compress_rope_theta "
    "max_position_embeddings initializer_range"
).split()
_FIXED = {"num_key_value_heads": 1, "n_shared_experts": 1, "scoring_func": "sqrtsoftplus", "norm_topk_prob": True,
          "tie_word_embeddings": False, "attention_bias": False, "hidden_act": "silu"}  # fmt: skip


def _fields_from_hf(data: Mapping[str, Any]) -> dict[str, Any]:
    missing = [key for key in _REQUIRED if data.get(key) is None]
    if missing:
        raise ConfigError(got=f"no {', '.join(missing)}", expected="the keys of a V4 config.json", where="config")
    for key, only in _FIXED.items():
        if key in data and data[key] != only:
            raise ConfigError(got=f"{key} = {data[key]!r}", expected=f"{only!r}, as every V4 model has", where="config")
    fields = {key: data[key] for key in (*_REQUIRED, *_OPTIONAL) if data.get(key) is not None}
    depth = data.get("num_nextn_predict_layers")
    fields["num_nextn_predict_layers"] = 1 if depth is None else depth
    fields["compress_ratios"] = _ratios(data, num_mtp=fields["num_nextn_predict_layers"])
    fields["num_hash_layers"] = _num_hash_layers(data)
    fields |= _rope(data, head_dim=fields.get("head_dim", 512))
    return fields


def _ratios(data: Mapping[str, Any], *, num_mtp: int) -> tuple[int, ...]:
    num_layers = data["num_hidden_layers"]
    ratios = data.get("compress_ratios")
    if ratios is None:
        types = data.get("layer_types")
        if types is None:
            raise ConfigError(got="neither", expected="compress_ratios or layer_types", where="config")
        unknown = [kind for kind in types if kind not in _LAYER_TYPE_KINDS]
        if unknown:
            raise ConfigError(
                got=f"layer type {unknown[0]!r}", expected=", ".join(_LAYER_TYPE_KINDS), where="layer_types"
            )
        rates = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
        rates |= data.get("compress_rates") or {}
        ratios = [rates.get(kind, 0) for kind in types]
        if rates["compressed_sparse_attention"] != CSA_RATIO and "compressed_sparse_attention" in types:
            raise ConfigError(
                got=f"a CSA rate of {rates['compressed_sparse_attention']}", expected="4", where="compress_rates"
            )
        rate = rates["heavily_compressed_attention"]
        if rate in (0, CSA_RATIO) and "heavily_compressed_attention" in types:
            raise ConfigError(got=f"an HCA rate of {rate}", expected="neither 0 nor 4", where="compress_rates")
    # transformers lists the trunk only; the released MTP blocks are dense (ratio 0).
    return tuple(ratios) if len(ratios) > num_layers else (*ratios, *(0,) * num_mtp)


def _num_hash_layers(data: Mapping[str, Any]) -> int:
    if data.get("num_hash_layers") is not None:
        return int(data["num_hash_layers"])
    types = data.get("mlp_layer_types")
    if types is None:
        return min(3, int(data["num_hidden_layers"]))
    count = list(types).count("hash_moe")
    if list(types) != ["hash_moe"] * count + ["moe"] * (len(types) - count):
        raise ConfigError(
            got=f"mlp_layer_types {list(types)}", expected="hash_moe layers first, then moe", where="config"
        )
    return count


def _rope(data: Mapping[str, Any], *, head_dim: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    nested = data.get("rope_parameters") or {}
    scaling = data.get("rope_scaling") or nested.get("compress") or nested
    if data.get("qk_rope_head_dim") is not None:
        fields["qk_rope_head_dim"] = data["qk_rope_head_dim"]
    else:
        factors = (data, nested.get("main") or {}, nested)
        share = next((each["partial_rotary_factor"] for each in factors if each.get("partial_rotary_factor")), None)
        if share is not None:
            fields["qk_rope_head_dim"] = int(head_dim * share)
    for name, key in (("rope_theta", "main"), ("compress_rope_theta", "compress")):
        if "rope_theta" in (nested.get(key) or {}):
            fields[name] = nested[key]["rope_theta"]
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "yarn":
        keys = ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow")
        missing = [key for key in keys[:2] if scaling.get(key) is None]
        if missing:
            raise ConfigError(got=f"YaRN without {missing[0]}", expected=" and ".join(keys[:2]), where="rope_scaling")
        fields["rope_scaling"] = Yarn(**{key: scaling[key] for key in keys if scaling.get(key) is not None})
    elif kind != "default":
        raise ConfigError(got=f"rope type {kind!r}", expected="'yarn' or none", where="rope_scaling")
    return fields
