"""Weights in and out: transformers' and the released checkpoint's names, safetensors folders and sharded indexes.

The released block of a trunk layer and of an MTP depth has the same names, `layers.N.` and `mtp.K.`; `mtp.*` is kept in
both spellings (transformers itself has no MTP).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from v4model.errors import WeightError
from v4model.layers.experts import Experts
from v4model.model import V4Model
from v4model.model.model import WHOLE

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


@dataclass(frozen=True, eq=False)
class _Piece:
    """A view of the model's own memory. rows: of transformers' stack of all `experts`, those that a share holds."""

    tensor: Tensor
    rows: range | None = None
    experts: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the tensor in a checkpoint."""
        return tuple(self.tensor.shape) if self.rows is None else (self.experts, *self.tensor.shape[1:])

    @property
    def is_table(self) -> bool:
        """Whether it holds ids, as a hash router's table does."""
        return not self.tensor.is_floating_point()

    def of(self, given: Tensor) -> Tensor:
        """What of a checkpoint's tensor belongs here."""
        return given if self.rows is None else given[self.rows.start : self.rows.stop]


def export(model: V4Model, *, names: Names = "transformers") -> dict[str, Tensor]:
    """The model's tensors under `names`; the released spelling has one w1, w2, w3 an expert.

    Of a share of a model, its part, with the whole model's numbers of layers and experts.

    Raises:
        WeightError: transformers' spelling of some of the experts: it has no name for a part of their stack.
    """
    tensors = {}
    for name, piece in _pieces(model, names=names):
        if piece.rows is not None:
            raise WeightError(got=f"{len(piece.rows)} of {piece.experts} experts", expected="all, or names='released'")
        tensors[name] = piece.tensor
    return tensors


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
    for name, tensor in export(model, names=names).items():
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

    Nothing is copied unless everything fits. Values are rounded to the model's dtypes. A share of a model takes its
    part out of the whole model's weights.

    Raises:
        WeightError: a missing, unexpected or misshapen tensor, or an unreadable file; the first of them is named.
    """
    given = dict(source) if isinstance(source, Mapping) else _read(Path(source))
    # By more than one name: a checkpoint that lacks its embedding must still be read in its own spelling.
    released = any(name.startswith(("embed.", "layers.")) for name in given)
    names: Names = "released" if released else "transformers"
    wanted = dict(_pieces(model, names=names))
    where = "the weights" if isinstance(source, Mapping) else str(source)
    whole = V4Model(model.config, device="meta") if model.share != WHOLE else model
    _check_names(wanted, given, known={name for name, _ in _pieces(whole, names=names)}, where=where)
    for name, piece in wanted.items():
        if tuple(given[name].shape) != piece.shape:
            raise WeightError(
                got=f"{name} of shape {list(given[name].shape)}", expected=f"{list(piece.shape)}", where=where
            )
        if piece.is_table:
            _check_table(name, given[name], experts=model.config.n_routed_experts, where=where)
    # Pieces are views of the model's own tensors, so copying into them loads it.
    for name, piece in wanted.items():
        piece.tensor.copy_(piece.of(given[name]))


def _check_table(name: str, table: Tensor, *, experts: int, where: str) -> None:
    """A hash router's table holds expert ids; one past the last would be found by the token that meets it."""
    if table.is_floating_point():
        raise WeightError(got=f"{name} of dtype {table.dtype}", expected="whole numbers", where=where)
    low, high = (int(end) for end in table.aminmax())
    if low < 0 or high >= experts:
        got = f"{name} with experts {low} to {high}"
        raise WeightError(got=got, expected=f"0 to {experts - 1}", where=where)


def _check_names(wanted: Mapping[str, _Piece], given: Mapping[str, Tensor], *, known: set[str], where: str) -> None:
    """known: names that other ranks of a shared model may want."""
    missing = [name for name in wanted if name not in given]
    unexpected = [name for name in given if name not in known]
    if not missing and not unexpected:
        return
    got = " and ".join(
        f"{kind} {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        for kind, names in (("no", missing), ("unexpected", unexpected))
        if names
    )
    raise WeightError(got=got, expected=f"exactly the model's {len(wanted)} tensors", where=where)


def _pieces(model: V4Model, *, names: Names) -> Iterator[tuple[str, _Piece]]:
    """Every parameter and buffer under its public name, as views of the model's own memory."""
    if names not in get_args(Names):
        raise WeightError(got=f"names={names!r}", expected=" or ".join(map(repr, get_args(Names))))
    for ours, tensor in model.state_dict().items():
        path, _, leaf = ours.rpartition(".")
        module = model.get_submodule(path)
        if not isinstance(module, Experts):
            yield _rename(ours, _TRANSFORMERS if names == "transformers" else _RELEASED), _Piece(tensor)
        elif names == "transformers":
            rows = None if len(module.held) == module.num_experts else module.held
            yield _rename(ours, _TRANSFORMERS), _Piece(tensor, rows, module.num_experts)
        else:
            prefix = _rename(f"{path}.", _RELEASED)
            for expert, weight in zip(module.held, tensor, strict=True):
                parts = (("w2", weight),) if leaf == "down_proj" else zip(("w1", "w3"), weight.chunk(2), strict=True)
                for short, part in parts:
                    yield f"{prefix}{expert}.{short}.weight", _Piece(part)


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
            files = {Path(file) for file in json.loads(index.read_text())["weight_map"].values()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise WeightError(got=repr(error), expected="an index with a weight_map", where=str(index)) from error
        return [folder / file for file in sorted(files)]
    if single.is_file():
        return [single]
    raise WeightError(got="neither", expected=f"{_SINGLE} or {_INDEX}", where=str(folder))
