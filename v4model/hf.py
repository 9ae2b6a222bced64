"""Weights in and out: transformers' and the released checkpoint's names, safetensors folders and sharded indexes.

The released block of a trunk layer and of an MTP depth has the same names, `layers.N.` and `mtp.K.`; `mtp.*` is kept in
both spellings (transformers itself has no MTP).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from v4model.errors import WeightError
from v4model.model import V4Model

Names = Literal["transformers", "released"]

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"

# (ours, transformers'), applied in order to a whole name.
_TRANSFORMERS = (
    (r"^trunk\.", "model."),
    (r"^(mtp\.\d+)\.block\.", r"\1."),
    (r"\.indexer\.compressor\.", ".compressor.indexer."),
    (r"\.self_attn\.indexer\.q_b_proj\.", ".self_attn.compressor.indexer.q_b_proj."),
    (r"\.self_attn\.indexer\.weights_proj\.", ".self_attn.compressor.indexer.scorer.weights_proj."),
)
# (ours, the released checkpoint's), likewise.
_RELEASED = (
    (r"^trunk\.embed_tokens\.", "embed."),
    (r"^lm_head\.", "head."),
    (r"^trunk\.", ""),
    (r"^(mtp\.\d+)\.block\.", r"\1."),
    (r"(^|\.)hc_head\.hc_(fn|base|scale)$", r"\1hc_head_\2"),
    (r"\.(attn|ffn)_hc\.(fn|base|scale)$", r".hc_\1_\2"),
    (r"\.input_layernorm\.", ".attn_norm."),
    (r"\.post_attention_layernorm\.", ".ffn_norm."),
    (r"\.shared_experts\.gate_proj\.", ".shared_experts.w1."),
    (r"\.shared_experts\.down_proj\.", ".shared_experts.w2."),
    (r"\.shared_experts\.up_proj\.", ".shared_experts.w3."),
    (r"\.compressor\.kv_norm\.", ".compressor.norm."),
    (r"\.q_a_norm\.", ".q_norm."),
    (r"\.q_a_proj\.", ".wq_a."),
    (r"\.q_b_proj\.", ".wq_b."),
    (r"\.kv_proj\.", ".wkv."),
    (r"\.gate_proj\.", ".wgate."),
    (r"\.o_a_proj\.", ".wo_a."),
    (r"\.o_b_proj\.", ".wo_b."),
    (r"\.position_bias$", ".ape"),
    (r"\.sinks$", ".attn_sink"),
    (r"\.gate\.e_score_correction_bias$", ".gate.bias"),
    (r"\.self_attn\.", ".attn."),
    (r"\.mlp\.", ".ffn."),
)


def export(model: V4Model, *, names: Names = "transformers") -> dict[str, Tensor]:
    """The model's tensors under `names`; the released spelling has one w1, w2, w3 an expert."""
    return dict(_pieces(model, names=names))


def save(model: V4Model, folder: str | Path, *, names: Names = "transformers", shard_bytes: int = 5 * 2**30) -> None:
    """Writes `export(model)` as safetensors: one file, or shards of at most `shard_bytes` with an index.

    The index is written last, so that a folder with an index is whole; that of an earlier save, which would be read
    in place of a single file, goes first.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _INDEX).unlink(missing_ok=True)
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in _pieces(model, names=names):
        if size and size + tensor.nbytes > shard_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = tensor.contiguous()
        size += tensor.nbytes
    if len(shards) == 1:
        save_file(shards[0], folder / _SINGLE)
        return
    where: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, folder / file)
        where |= dict.fromkeys(shard, file)
    total = sum(tensor.nbytes for shard in shards for tensor in shard.values())
    (folder / _INDEX).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=1))


@torch.no_grad()
def load(model: V4Model, source: Mapping[str, Tensor] | str | Path) -> None:
    """Copies weights into the model from a state dict, a .safetensors file or a folder, in either spelling.

    Nothing is copied unless everything fits. Values are rounded to the model's dtypes.

    Raises:
        WeightError: a missing, unexpected or misshapen tensor, or an unreadable file; the first of them is named.
    """
    given = dict(source) if isinstance(source, Mapping) else _read(Path(source))
    # By more than one name: a checkpoint that lacks its embedding must still be read in its own spelling.
    released = any(name.startswith(("embed.", "layers.")) for name in given)
    names: Names = "released" if released else "transformers"
    wanted = dict(_pieces(model, names=names))
    where = "the weights" if isinstance(source, Mapping) else str(source)
    _check_names(wanted, given, where=where)
    for name, tensor in wanted.items():
        if given[name].shape != tensor.shape:
            raise WeightError(
                got=f"{name} of shape {list(given[name].shape)}", expected=f"{list(tensor.shape)}", where=where
            )
    # Pieces are views of the model's own tensors, so copying into them loads it.
    for name, tensor in wanted.items():
        tensor.copy_(given[name])


def _check_names(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor], *, where: str) -> None:
    missing = [name for name in wanted if name not in given]
    unexpected = [name for name in given if name not in wanted]
    if not missing and not unexpected:
        return
    got = " and ".join(
        f"{kind} {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        for kind, names in (("no", missing), ("unexpected", unexpected))
        if names
    )
    raise WeightError(got=got, expected=f"exactly the model's {len(wanted)} tensors", where=where)


def _pieces(model: V4Model, *, names: Names) -> Iterator[tuple[str, Tensor]]:
    """Every parameter and buffer under its public name, as views of the model's own memory."""
    if names not in get_args(Names):
        raise WeightError(got=f"names={names!r}", expected=" or ".join(map(repr, get_args(Names))))
    for ours, tensor in model.state_dict().items():
        if names == "transformers":
            yield _rename(ours, _TRANSFORMERS), tensor
        elif ours.endswith(".experts.gate_up_proj"):
            prefix = _rename(ours.removesuffix("gate_up_proj"), _RELEASED)
            for expert, (gate, up) in enumerate(tensor.unflatten(1, (2, -1)).unbind(0)):
                yield f"{prefix}{expert}.w1.weight", gate
                yield f"{prefix}{expert}.w3.weight", up
        elif ours.endswith(".experts.down_proj"):
            prefix = _rename(ours.removesuffix("down_proj"), _RELEASED)
            for expert, down in enumerate(tensor):
                yield f"{prefix}{expert}.w2.weight", down
        else:
            yield _rename(ours, _RELEASED), tensor


def _rename(name: str, rules: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name


def _read(path: Path) -> dict[str, Tensor]:
    files = [path] if path.is_file() else _shards(path)
    tensors: dict[str, Tensor] = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as shard:
                for name in shard.keys():  # noqa: SIM118 - not a mapping: it has keys() only
                    if name in tensors:
                        raise WeightError(got=f"{name} twice", expected="each tensor once", where=str(file))
                    tensors[name] = shard.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise WeightError(got=str(error), expected="a readable safetensors file", where=str(file)) from error
    return tensors


def _shards(folder: Path) -> list[Path]:
    index, single = folder / _INDEX, folder / _SINGLE
    if index.is_file():
        try:
            files = set(json.loads(index.read_text())["weight_map"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise WeightError(got=repr(error), expected="an index with a weight_map", where=str(index)) from error
        return [folder / file for file in sorted(files)]
    if single.is_file():
        return [single]
    raise WeightError(got="neither", expected=f"{_SINGLE} or {_INDEX}", where=str(folder))
