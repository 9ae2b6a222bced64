"""Bin packing: against a slow best-fit decreasing, and at the size of a real data set."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4model.data.packing import aligned, assign, least_packs
from v4model.errors import DataError

cases = st.integers(2, 40).flatmap(
    lambda window: st.tuples(st.just(window), st.lists(st.integers(1, window), min_size=1, max_size=60))
)
seeds = st.integers(0, 2**32)


def rooms_of_slow_best_fit(lengths: list[int], *, window: int) -> list[int]:
    """Room left in each pack by best-fit decreasing, one sample at a time over all packs."""
    rooms: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [pack for pack, room in enumerate(rooms) if room >= length]
        if fitting:
            rooms[min(fitting, key=lambda pack: rooms[pack])] -= length
        else:
            rooms.append(window - length)
    return rooms


@given(case=cases, seed=seeds)
def test_best_fit_is_best_fit_decreasing(case: tuple[int, list[int]], seed: int) -> None:
    window, lengths = case
    fill = assign(lengths, window=window, seed=seed).fill(lengths)
    assert sorted(window - fill) == sorted(rooms_of_slow_best_fit(lengths, window=window))
    assert fill[-1] == fill.min()


@pytest.mark.parametrize("mode", ["best-fit", "sequential", "padded"])
@given(case=cases, seed=seeds)
def test_every_sample_is_in_one_pack_and_fits(mode: str, case: tuple[int, list[int]], seed: int) -> None:
    window, lengths = case
    found = assign(lengths, window=window, mode=mode, seed=seed)  # type: ignore[arg-type]
    assert sorted(found.order) == list(range(len(lengths)))
    assert found.samples_per_pack.min() >= 1
    assert found.samples_per_pack.sum() == len(lengths)
    assert found.fill(lengths).max() <= window
    assert len(found.samples_per_pack) >= least_packs(lengths, window=window)


@given(case=cases)
def test_sequential_keeps_the_order_and_closes_a_pack_only_when_it_must(case: tuple[int, list[int]]) -> None:
    window, lengths = case
    packs: list[list[int]] = [[]]
    for length in lengths:
        if sum(packs[-1]) + length > window:
            packs.append([])
        packs[-1].append(length)
    found = assign(lengths, window=window, mode="sequential")
    assert found.order.tolist() == list(range(len(lengths)))
    assert found.samples_per_pack.tolist() == [len(pack) for pack in packs]


def test_padded_gives_every_sample_a_row() -> None:
    assert assign([3, 1, 2], window=4, mode="padded").samples_per_pack.tolist() == [1, 1, 1]


def test_the_seed_decides_and_nothing_else() -> None:
    lengths = np.random.default_rng(0).integers(1, 50, 400)
    first, again, other = (assign(lengths, window=256, seed=seed) for seed in (7, 7, 8))
    assert first.order.tolist() == again.order.tolist()
    assert first.order.tolist() != other.order.tolist()
    assert sorted(first.fill(lengths)) == sorted(other.fill(lengths))


def test_there_is_no_limit_on_samples_per_pack() -> None:
    assert assign([1] * 9000, window=4096).samples_per_pack.tolist() == [4096, 4096, 808]


def test_a_sample_of_exactly_the_window_and_the_last_one_are_kept() -> None:
    found = assign([8, 8, 1], window=8)
    assert found.fill([8, 8, 1]).tolist() == [8, 8, 1]


def test_slots_are_multiples_of_the_alignment() -> None:
    assert aligned([1, 4, 5, 8], align=4).tolist() == [4, 4, 8, 8]
    assert aligned([1, 4, 5], align=1).tolist() == [1, 4, 5]


@pytest.mark.parametrize(
    ("lengths", "got", "where"),
    [
        ([], "no samples", ""),
        ([3, 9], "a sample of 9 tokens", "sample 1 of 2"),
        ([0, 3], "a sample of 0 tokens", "sample 0 of 2"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(lengths: list[int], got: str, where: str) -> None:
    with pytest.raises(DataError) as caught:
        assign(lengths, window=8)
    assert (caught.value.got, caught.value.where) == (got, where)


def test_a_million_lengths_take_at_most_five_seconds() -> None:
    # Lengths like those of instruction data; LOG.md has the measured time. CPU time, so that load does not count.
    lengths = np.clip(np.random.default_rng(0).lognormal(5, 1, 1_000_000).astype(np.int64) + 1, 1, 4096)
    start = time.process_time()
    fill = assign(lengths, window=4096).fill(lengths)
    assert time.process_time() - start <= 5
    assert fill[:-1].min() >= 0.99 * 4096
