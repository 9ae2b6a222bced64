"""A plain reading's intermediate results as a record, next to which a subject's own is laid.

What a query may read is not computed by the reading, but follows from the text: the tokens of its window and the
windows complete at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.subjects.record import NONE, Record, depth_of, laid_on, layer_of, module_of

if TYPE_CHECKING:
    from harness.subjects.numpy_reading import Reading
    from v4model import PackLayout, V4Config


def record_of(readings: Sequence[Reading], *, config: V4Config, layout: PackLayout) -> dict[str, Tensor]:
    """The readings of a pack's samples, all of them in order, as one record of the pack."""
    parts = [
        (_record(reading, config=config), torch.arange(start, start + length))
        for reading, start, length in zip(readings, layout.starts, layout.lengths, strict=True)
    ]
    return laid_on(parts, total=layout.total)


def _record(reading: Reading, *, config: V4Config) -> Record:
    length, tables = len(reading.nll), dict[str, Tensor]()
    for path, part in reading.parts.items():
        name = path.removeprefix("model.")
        if name.endswith(".shifted"):
            tables[f"{module_of(name)}.ahead"] = _ahead(length, depth=depth_of(name))
        if name.endswith(".mlp"):
            experts = torch.from_numpy(reading.experts[path.removesuffix(".mlp")])
            tables[f"{name}.gate.experts"] = experts.sort(dim=1).values
        if not name.endswith(".compressor"):
            tables[name] = torch.from_numpy(part)
            continue
        ratio = config.compress_ratios[layer_of(name, num_hidden_layers=config.num_hidden_layers)]
        attention = name.removesuffix(".compressor")
        tables[f"{attention}.local"] = _window(length, window=config.sliding_window)
        if ratio:
            tables |= {name: torch.from_numpy(part), f"{attention}.windows": torch.arange(length // ratio) * ratio}
            tables[f"{attention}.visible"] = _complete(length, ratio=ratio)
        picks = reading.picks.get(path.removesuffix(".self_attn.compressor"))
        if picks is not None:
            tables[f"{attention}.indexer.picks"] = _picked(picks, topk=config.index_topk, ratio=ratio)
    return tables


def _ahead(length: int, *, depth: int) -> Tensor:
    """[T, 1] the token whose embedding each position of an MTP depth is joined with."""
    token = torch.arange(length)[:, None] + depth
    return torch.where(token < length, token, NONE)


def _window(length: int, *, window: int) -> Tensor:
    """[T, window] the tokens that each position sees, itself the last."""
    tokens = torch.arange(length)[:, None] - torch.arange(window - 1, -1, -1)
    return torch.where(tokens >= 0, tokens, NONE)


def _complete(length: int, *, ratio: int) -> Tensor:
    """[T, W] the windows complete at each position, by first token."""
    first = (torch.arange(length // ratio) * ratio).expand(length, -1)
    return torch.where(first + ratio <= torch.arange(length)[:, None] + 1, first, NONE)


def _picked(picks: Sequence[Sequence[int]], *, topk: int, ratio: int) -> Tensor:
    rows = [[window * ratio for window in row] + [NONE] * (topk - len(row)) for row in picks]
    return torch.tensor(rows, dtype=torch.int64)
