"""PackedData: the packs of a recipe, each ready to be a `Pack`, and the order in which a training run reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from v4model.data.cache import Arrays
from v4model.data.packing import Assignment, Ints, aligned, assign
from v4model.data.recipe import Recipe
from v4model.data.sources import Located
from v4model.data.table import Losses, SampleTable, tabulate
from v4model.errors import DataError

if TYPE_CHECKING:
    from v4model.pack import Pack, PackLayout


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedData:
    """P packs of a recipe.

    Args:
        table: the samples, pack after pack.
        samples_per_pack: [P] int64.
        losses: what the recipe's policies took away.
    """

    recipe: Recipe
    table: SampleTable
    samples_per_pack: Ints
    losses: Losses

    @classmethod
    def of_table(cls, table: SampleTable, *, recipe: Recipe, losses: Losses) -> PackedData:
        """Packs samples that are no longer than the window."""
        slots = aligned(table.lengths, align=recipe.align)
        found: Assignment = assign(slots, window=recipe.window, mode=recipe.mode, seed=recipe.seed)
        return cls(recipe=recipe, table=table.take(found.order), samples_per_pack=found.samples_per_pack, losses=losses)

    @classmethod
    def from_arrays(cls, arrays: Arrays, *, recipe: Recipe) -> PackedData:
        """The inverse of `to_arrays`."""
        table = SampleTable(**{name: arrays[name] for name in ("tokens", "supervised", "lengths", "record", "offset")})
        return cls(
            recipe=recipe,
            table=table,
            samples_per_pack=arrays["samples_per_pack"],
            losses=Losses.from_counts(arrays["losses"].tolist()),
        )

    def to_arrays(self) -> Arrays:
        """What a cache holds."""
        return {
            "tokens": self.table.tokens,
            "supervised": self.table.supervised,
            "lengths": self.table.lengths,
            "record": self.table.record,
            "offset": self.table.offset,
            "samples_per_pack": self.samples_per_pack,
            "losses": np.array(astuple(self.losses), dtype=np.int64),
        }

    def __len__(self) -> int:
        return self.samples_per_pack.size

    @cached_property
    def first_sample(self) -> Ints:
        """[P + 1] int64: the first sample of each pack in the table, and the number of samples."""
        return np.append(0, np.cumsum(self.samples_per_pack))

    def samples(self, pack: int) -> range:
        """The samples of a pack, as they stand in the table. Raises DataError for a pack that is not there."""
        if not 0 <= pack < len(self):
            raise DataError(got=f"pack {pack}", expected=f"0 to {len(self) - 1}", where=f"{len(self)} packs")
        return range(int(self.first_sample[pack]), int(self.first_sample[pack + 1]))

    def layout(self, pack: int) -> PackLayout:
        """Where the samples of a pack lie in its row."""
        from v4model.pack import PackLayout

        samples = self.samples(pack)
        lengths = self.table.lengths[samples.start : samples.stop]
        slots = aligned(lengths, align=self.recipe.align)
        return PackLayout.from_lengths(lengths, slots=slots, total=self.recipe.row_tokens)

    def pack(self, pack: int) -> Pack:
        """One pack; the ids at padding are 0 and never read."""
        import torch

        from v4model.pack import Pack

        layout, samples = self.layout(pack), self.samples(pack)
        start = int(self.table.starts[samples.start])
        part = slice(start, start + layout.real_tokens)
        tokens = torch.zeros(layout.total, dtype=torch.int64)
        tokens[layout.real] = torch.from_numpy(self.table.tokens[part].astype(np.int64))
        supervised = torch.zeros(layout.total, dtype=torch.bool)
        supervised[layout.real] = torch.from_numpy(self.table.supervised[part].copy())
        return Pack(tokens, layout=layout, supervised=supervised)

    def order(self, *, start: int = 0, rank: int = 0, ranks: int = 1) -> Iterator[int]:
        """The packs that replica `rank` of `ranks` reads, without end, from its step `start` on.

        Each epoch has every pack once, in an order drawn from the seed and the epoch; replicas take turns in it, also
        over its end, so none is dropped and none waits. The step alone says where a run is: `order(start=n)` goes on
        where n steps ended. Raises DataError for a rank outside the group.
        """
        if not 0 <= rank < ranks or start < 0:
            got = f"rank {rank} of {ranks}, start {start}"
            raise DataError(got=got, expected="0 <= rank < ranks and start >= 0", where="order of packs")
        return self._order(start, rank, ranks)

    def _order(self, start: int, rank: int, ranks: int) -> Iterator[int]:
        drawn, permutation = -1, np.arange(0)
        position = start * ranks + rank
        while True:
            epoch, place = divmod(position, len(self))
            if epoch != drawn:
                drawn, permutation = epoch, np.random.default_rng([self.recipe.seed, epoch]).permutation(len(self))
            yield int(permutation[place])
            position += ranks


def pack_samples(samples: Iterable[Located], *, recipe: Recipe) -> PackedData:
    """Samples to packs. Raises DataError where the recipe's policies refuse one."""
    table, losses = tabulate(samples, recipe=recipe)
    return PackedData.of_table(table, recipe=recipe, losses=losses)
