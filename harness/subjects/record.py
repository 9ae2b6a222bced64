"""What a recorded forward pass holds, by name, and how records are laid on another pack's tokens.

A name is a module ("layers.1.self_attn", "mtp.0.e_proj") for what it put out, or `{module}.{table}`, in the order of
execution. Axes: T tokens, W pooled rows, K streams. What is read is named by tokens of the pack, a pooled row by the
first token of its window, so that rows of two runs can be told apart whatever their numbers; `NONE` fills up.

    {block}.attn_hc, .self_attn, .ffn_hc, .mlp              [T, D]
    {block}.attn_hc.streams, {block}.ffn_hc.streams         [T, K, D] behind attention, behind the experts
    {block}.self_attn.compressor, .indexer.compressor       [W, d] pooled rows
    {block}.self_attn.windows                               [W] the window of each pooled row
    {block}.self_attn.local, .visible                       [T, n] tokens and pooled rows that a query may read
    {block}.self_attn.indexer.picks                         [T, k] the pooled rows that it does read, in their order
    {block}.self_attn.indexer.scores                        [T, k] those rows' scores, 0 where none
    {block}.mlp.gate.affinity, .choice                      [T, E], and what a learned router chooses by
    {block}.mlp.gate.experts                                [T, k] in ascending order
    mtp.{k}.e_proj.ahead, .shifted                          [T, 1] the token read ahead, [T, D] its embedding
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

Record: TypeAlias = Mapping[str, Tensor]

NONE = -1
OUTSIDE = -2
"""A token or window that is read, but is not in the pack that the record is laid on."""

_READS = ("local", "visible", "picks", "ahead")
_TABLES = ("streams", "windows", "scores", "experts", "affinity", "choice", "shifted", *_READS)


def names_reads(name: str) -> bool:
    """Whether the table says what is read ([T, n] tokens, in no order) instead of what was computed."""
    return leaf_of(name) in _READS


def names_pooled_rows(name: str) -> bool:
    """Whether the table has a row a window instead of a row a token."""
    return leaf_of(name) in ("compressor", "windows")


def leaf_of(name: str) -> str:
    """The last word of a name."""
    return name.rsplit(".", 1)[-1]


def module_of(name: str) -> str:
    """The module that a table was recorded in; a module's own name as it is."""
    return name.rsplit(".", 1)[0] if leaf_of(name) in _TABLES else name


def block_of(name: str) -> str:
    """ "layers.1" or "mtp.0"."""
    return ".".join(name.split(".")[:2])


def depth_of(name: str) -> int:
    """0 for the trunk, k for MTP depth k."""
    return int(name.split(".")[1]) + 1 if name.startswith("mtp.") else 0


def layer_of(name: str, *, num_hidden_layers: int) -> int:
    """The block's place in `config.compress_ratios`."""
    number = int(name.split(".")[1])
    return num_hidden_layers + number if name.startswith("mtp.") else number


def laid_on(parts: Sequence[tuple[Record, Tensor]], *, total: int) -> dict[str, Tensor]:
    """Records of packs that each hold a part of the tokens of a pack of `total` tokens, as one record of that pack.

    Each comes with [its T] the pack's token for each of its own, NONE for those that the pack does not hold. Rows of
    tokens that no part holds are 0, or NONE where the table says what is read.
    """
    names = list(parts[0][0])
    return {name: _joined(name, [(record, tokens) for record, tokens in parts], total=total) for name in names}


def joined_ranks(records: Sequence[Record], *, total: int) -> dict[str, Tensor]:
    """Records of ranks, which name tokens of the whole pack, one after another; pooled rows are those of the first."""
    joined = {}
    for name, table in records[0].items():
        tables = [record[name] for record in records]
        if names_reads(name):
            width = max(table.shape[1] for table in tables)
            tables = [widened(table, width) for table in tables]
        joined[name] = table if names_pooled_rows(name) else torch.cat(tables)[:total]
    return joined


def _joined(name: str, parts: Sequence[tuple[Record, Tensor]], *, total: int) -> Tensor:
    if names_pooled_rows(name):
        windows = f"{block_of(name)}.self_attn.windows"
        moved = [_renumbered(record[windows], tokens) for record, tokens in parts]
        tables = moved if name == windows else [record[name] for record, _ in parts]
        return torch.cat([table[window != OUTSIDE] for table, window in zip(tables, moved, strict=True)])
    reads = names_reads(name)
    width = max(record[name].shape[1] for record, _ in parts) if reads else 0
    whole: Tensor | None = None
    for record, tokens in parts:
        rows = widened(_renumbered(record[name], tokens), width) if reads else record[name]
        if whole is None:
            whole = rows.new_full((total, *rows.shape[1:]), NONE if reads else 0)
        held = tokens >= 0
        whole[tokens[held]] = rows[held]
    assert whole is not None, "a record has at least one part"
    return whole


def _renumbered(reads: Tensor, tokens: Tensor) -> Tensor:
    """Tokens of a part as tokens of the whole, OUTSIDE for those that it does not hold."""
    inside = (reads >= 0) & (reads < len(tokens))
    new = tokens[torch.where(inside, reads, 0)]
    new = torch.where(inside & (new >= 0), new, OUTSIDE)
    return torch.where(reads == NONE, NONE, new)


def widened(reads: Tensor, width: int) -> Tensor:
    """[T, n] filled up with NONE to `width` columns."""
    return torch.cat([reads, reads.new_full((len(reads), width - reads.shape[1]), NONE)], dim=1)


def choices_in(record: Record) -> Record:
    """The tables of a record that say what was chosen: pooled rows and experts."""
    return {name: table for name, table in record.items() if leaf_of(name) in ("picks", "experts")}
