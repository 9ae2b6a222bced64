"""Visibility: the one frozen value that decides what a query sees (design: nothing else in the model does)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from v4model.pack.layout import PackLayout
from v4model.pack.transfer import to_device
from v4model.pack.windows import Windows, windows_of


@dataclass(frozen=True, eq=False)
class PoolVisibility:
    """Which pooled rows of one ratio a query may see: rows [base, base + visible) of its own sample."""

    windows: Windows
    """Those of the whole pack."""
    base: Tensor
    """[T] int64: first pooled row of the token's sample."""
    visible: Tensor
    """[T] int64: rows whose windows are complete at the token, (position + 1) // ratio; 0 for padding."""

    def rows(self, start: int, end: int) -> Tensor:
        """[end - start, C] int64: every pooled row each query may see, -1 behind the last."""
        visible = self.visible[start:end, None]
        columns = torch.arange(int(visible.max()) if end > start else 0, device=visible.device)
        return torch.where(columns < visible, self.base[start:end, None] + columns, -1)


@dataclass(frozen=True, eq=False)
class Visibility:
    """Implicit tables of a layout, a few bytes a token; only the indexer's picks are ever explicit.

    Rows of keys are numbered over the whole pack, tokens first (0 .. T-1), then pooled rows (T + row); -1 is "none".
    The queries are all tokens, or those of one rank (`part`), numbered from the first of them.
    """

    layout: PackLayout
    window: int
    first_query: int
    local_lo: Tensor
    """[T] int64: first token the query sees, max(sample start, t - window + 1); t + 1 (nothing) for padding."""
    pools: Mapping[int, PoolVisibility]
    """By compression ratio."""

    def part(self, start: int, end: int) -> Visibility:
        """The same for queries [start, end) only."""
        pools = {
            ratio: replace(pool, base=pool.base[start:end], visible=pool.visible[start:end])
            for ratio, pool in self.pools.items()
        }
        return replace(
            self, first_query=self.first_query + start, local_lo=self.local_lo[start:end], pools=MappingProxyType(pools)
        )

    def rows(self, start: int, end: int, *, ratio: int = 0, picks: Tensor | None = None) -> Tensor:
        """Key rows of queries [start, end) of a layer of `ratio`: local tokens, then pooled rows, -1 where none.

        Args:
            picks: [T, k] pooled rows the indexer chose (CSA), -1 where none; None: all visible ones (HCA).

        Returns:
            [end - start, window + C] int64.
        """
        tokens = torch.arange(start, end, device=self.local_lo.device)[:, None] + self.first_query
        local = tokens - torch.arange(self.window - 1, -1, -1, device=tokens.device)
        local = torch.where(local >= self.local_lo[start:end, None], local, -1)
        if not ratio:
            return local
        pooled = self.pools[ratio].rows(start, end) if picks is None else picks[start:end]
        return torch.cat([local, torch.where(pooled >= 0, pooled + self.layout.total, -1)], dim=1)


@lru_cache(maxsize=64)
def visibility_of(
    layout: PackLayout, *, window: int, ratios: tuple[int, ...], device: torch.device = torch.device("cpu")
) -> Visibility:
    """Builds the tables on the host, once per layout, and moves them to `device`."""
    # numpy on one thread: about 4 ms for 131,072 tokens, where torch's integer ops take 20.
    token = np.arange(layout.total)
    sample = layout.sample.numpy()
    first = np.append(np.asarray(layout.starts, dtype=np.int64), layout.total + 1)[sample]
    local_lo = np.where(sample >= 0, np.maximum(first, token - (window - 1)), token + 1)
    pools = {ratio: _pool(layout, ratio=ratio, device=device) for ratio in ratios}
    return Visibility(layout, window, 0, to_device(torch.from_numpy(local_lo), device), MappingProxyType(pools))


def _pool(layout: PackLayout, *, ratio: int, device: torch.device) -> PoolVisibility:
    windows = windows_of(layout, ratio=ratio)
    counts = np.asarray(layout.lengths, dtype=np.int64) // ratio
    sample = layout.sample.numpy()
    # Padding (sample -1) reads the appended 0.
    base = np.append(np.cumsum(counts) - counts, 0)[sample]
    # Windows complete at a token = windows that end at it or before in the pack, less those of earlier samples; this
    # equals (position + 1) // ratio and needs no division.
    ends = np.zeros(layout.total, dtype=np.int64)
    ends[windows.first_token.numpy() + (ratio - 1)] = 1
    visible = np.where(sample >= 0, np.cumsum(ends) - base, 0)
    tables = (to_device(torch.from_numpy(table), device) for table in (base, visible))
    return PoolVisibility(windows.to(device), *tables)
