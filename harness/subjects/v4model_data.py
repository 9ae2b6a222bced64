"""How this repository makes packs of records, behind the harness's protocol."""

from __future__ import annotations

import functools
import platform
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from unittest import mock

from torch import Tensor

from harness.subjects.packs_records import Cache, Packing
from v4model import Pack, PackLayout
from v4model.data import Recipe, load_packs, load_tokenizer, open_source
from v4model.data import cache as cache_module
from v4model.data import load as load_module


class V4Data:
    """`PacksRecords` by the functions of `v4model.data`."""

    def packs_of(self, path: Path, packing: Packing, *, cache: Cache | None = None) -> Sequence[Pack]:
        """Every pack of a file of records, by way of the cache if there is one."""
        recipe = Recipe(window=packing.window, align=packing.align, ranks=packing.ranks, seed=packing.seed)
        source, tokenizer = open_source(path), load_tokenizer(packing.tokenizer)
        with nullcontext() if cache is None else _built_on(cache):
            folder = None if cache is None else cache.folder
            packed = load_packs(source, tokenizer=tokenizer, recipe=recipe, cache=folder)
        return [packed.pack(number) for number in range(len(packed))]

    def layout_of_boundaries(self, cu_seqlens: Tensor, *, padded: Tensor | None, total: int) -> PackLayout:
        """By `PackLayout.from_cu_seqlens`."""
        return PackLayout.from_cu_seqlens(cu_seqlens, padded=padded, total=total)

    def layout_of_positions(self, position_ids: Tensor, *, padding: int | None) -> PackLayout:
        """By `PackLayout.from_position_ids`."""
        return PackLayout.from_position_ids(position_ids, padding=padding)


@contextmanager
def _built_on(cache: Cache) -> Iterator[None]:
    """Within, `load_packs` runs as on a machine of that name: with a folder of locks of its own, telling its steps."""
    locks = cache.folder.with_name(f"{cache.folder.name}-locks-of-{cache.machine}")
    there = functools.partial(cache_module.cached, lock_folder=locks, step=cache.step)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(load_module, "cached", there))
        stack.enter_context(mock.patch.object(platform, "node", return_value=cache.machine))
        yield
