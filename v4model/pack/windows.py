"""Compression windows: runs of `ratio` tokens counted from each sample's own start."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from v4model.pack.layout import PackLayout
from v4model.pack.transfer import to_device


@dataclass(frozen=True, eq=False)
class Windows:
    """The complete windows of a pack, sample by sample (CSA 2.3.1, HCA 2.3.2).

    A sample of `len` tokens has floor(len / ratio) windows; the remainder is in none. Lengths [9, 4] at ratio 4 give
    `first_token` = [0, 4, 9], `index` = [0, 1, 0], `sample` = [0, 0, 1].
    """

    ratio: int
    first_token: Tensor
    """[W] int64: first token of the window in the pack."""
    index: Tensor
    """[W] int64: number of the window inside its sample."""
    sample: Tensor
    """[W] int64: the sample."""

    @property
    def count(self) -> int:
        return self.first_token.numel()

    @property
    def position(self) -> Tensor:
        """[W] int64: in-sample position of the first token, where the pooled row is rotated to."""
        return self.index * self.ratio

    def slots(self, *, back: int = 0) -> Tensor:
        """[W, ratio] int64: tokens of the window `back` windows earlier in the same sample, -1 where there is none."""
        tokens = self.first_token[:, None] - back * self.ratio + torch.arange(self.ratio, device=self.index.device)
        return torch.where((self.index >= back)[:, None], tokens, -1)

    def part(self, rows: range) -> Windows:
        """The windows `rows` only."""
        part = slice(rows.start, rows.stop)
        return Windows(self.ratio, self.first_token[part], self.index[part], self.sample[part])

    def starting_at(self, token: int) -> Windows:
        """The same windows for tensors whose first row is `token` of the pack."""
        return replace(self, first_token=self.first_token - token)

    def to(self, device: torch.device) -> Windows:
        tables = (to_device(table, device) for table in (self.first_token, self.index, self.sample))
        return Windows(self.ratio, *tables)


def windows_of(layout: PackLayout, *, ratio: int) -> Windows:
    """The windows of every sample, on the host."""
    counts = np.asarray(layout.lengths, dtype=np.int64) // ratio
    sample = np.repeat(np.arange(layout.num_samples), counts)
    index = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    first = np.asarray(layout.starts, dtype=np.int64)[sample] + index * ratio
    return Windows(ratio, torch.from_numpy(first), torch.from_numpy(index), torch.from_numpy(sample))
