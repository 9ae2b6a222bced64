"""What a recipe made of a corpus: packs, shares, waste by cause, and the same corpus padded, sequential and packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from v4model.data.packed import PackedData
from v4model.data.packing import Ints, aligned, assign, least_packs
from v4model.data.recipe import Mode
from v4model.data.table import Losses

LAYOUT_NAMES: dict[Mode, str] = {
    "padded": "padded (BSHD)",
    "sequential": "sequential (THD)",
    "best-fit": "best fit (THD)",
}


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Samples of [shortest, 2 * shortest) tokens."""

    shortest: int
    samples: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class WithoutWindow:
    """What the compressed attention of one ratio does not reach; windows are counted from each sample's start.

    Args:
        packs: packs without a complete window: layers of this ratio see only their sliding window in them.
        samples: samples shorter than the ratio.
        tokens_outside: real tokens in no complete window, of such samples or behind the last window of one.
        tokens_without_row: real tokens that see no compressed row yet, the first ratio - 1 of each sample.
    """

    ratio: int
    packs: int
    samples: int
    tokens_outside: int
    tokens_without_row: int


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The corpus in rows by one mode.

    Args:
        total_tokens: what is computed: rows of a fixed length, padding included.
        real_tokens_in_budget: real tokens (a mean) in as many computed tokens as `best-fit` needs for the corpus; so
            are supervised_tokens_in_budget.
        predicted_gain: total_tokens of `padded` over those of this mode: how much less is computed for the same real
            tokens. It is a prediction of time where a step's time goes with its tokens.
    """

    mode: Mode
    rows: int
    total_tokens: int
    real_share: float
    supervised_share: float
    real_tokens_in_budget: int
    supervised_tokens_in_budget: int
    predicted_gain: float


@dataclass(frozen=True, kw_only=True)
class PackStats:
    """Counts of the packs of one recipe; total_tokens = real_tokens + alignment_tokens + padding_tokens.

    Args:
        least_packs: slots / window, rounded up: no packing has fewer.
        fills: [P] share of the window that slots take; by `best-fit` the last pack is the emptiest.
        supervised_tokens: labels that exist and are learned.
        alignment_tokens: padding inside, behind samples.
        padding_tokens: padding at the tail of packs.
    """

    window: int
    mode: Mode
    packs: int
    least_packs: int
    fills: tuple[float, ...]
    samples_per_pack: tuple[int, ...]
    total_tokens: int
    real_tokens: int
    supervised_tokens: int
    alignment_tokens: int
    padding_tokens: int
    losses: Losses
    lengths: tuple[Bucket, ...]
    without_window: tuple[WithoutWindow, ...]
    layouts: tuple[Layout, ...]


def stats_of(data: PackedData, *, ratios: Sequence[int]) -> PackStats:
    """Counts packs and samples; `ratios` are the model's compression ratios above 0."""
    table, recipe = data.table, data.recipe
    slots = aligned(table.lengths, align=recipe.align)
    slots_per_pack = np.add.reduceat(slots, data.first_sample[:-1])
    real, total = int(table.lengths.sum()), len(data) * recipe.row_tokens
    return PackStats(
        window=recipe.window,
        mode=recipe.mode,
        packs=len(data),
        least_packs=least_packs(slots, window=recipe.window),
        fills=tuple((slots_per_pack / recipe.window).tolist()),
        samples_per_pack=tuple(data.samples_per_pack.tolist()),
        total_tokens=total,
        real_tokens=real,
        supervised_tokens=int(table.labels.sum()),
        alignment_tokens=int(slots.sum()) - real,
        padding_tokens=total - int(slots.sum()),
        losses=data.losses,
        lengths=_buckets(table.lengths),
        without_window=tuple(_without_window(data, ratio=ratio) for ratio in ratios),
        layouts=_layouts(data),
    )


def _buckets(lengths: Ints) -> tuple[Bucket, ...]:
    power = np.frexp(lengths)[1] - 1  # exact for integers below 2^53
    samples, tokens = np.bincount(power), np.bincount(power, weights=lengths)
    first = int(power.min())
    return tuple(
        Bucket(shortest=1 << p, samples=int(samples[p]), tokens=int(tokens[p])) for p in range(first, samples.size)
    )


def _without_window(data: PackedData, *, ratio: int) -> WithoutWindow:
    lengths = data.table.lengths
    return WithoutWindow(
        ratio=ratio,
        packs=int((np.maximum.reduceat(lengths, data.first_sample[:-1]) < ratio).sum()),
        samples=int((lengths < ratio).sum()),
        tokens_outside=int((lengths % ratio).sum()),
        tokens_without_row=int(np.minimum(lengths, ratio - 1).sum()),
    )


def _layouts(data: PackedData) -> tuple[Layout, ...]:
    recipe, table = data.recipe, data.table
    # In the order of the records, which is what `sequential` keeps.
    slots = aligned(table.lengths[np.lexsort((table.offset, table.record))], align=recipe.align)
    modes: tuple[Mode, ...] = get_args(Mode)
    rows = {
        mode: assign(slots, window=recipe.window, mode=mode, seed=recipe.seed).samples_per_pack.size for mode in modes
    }
    real, supervised = int(table.lengths.sum()), int(table.labels.sum())
    budget = rows["best-fit"] * recipe.row_tokens
    layouts = []
    for mode in reversed(modes):
        total = rows[mode] * recipe.row_tokens
        layouts.append(
            Layout(
                mode=mode,
                rows=rows[mode],
                total_tokens=total,
                real_share=real / total,
                supervised_share=supervised / total,
                real_tokens_in_budget=round(real / total * budget),
                supervised_tokens_in_budget=round(supervised / total * budget),
                predicted_gain=rows["padded"] / rows[mode],
            )
        )
    return tuple(layouts)
