"""From samples to packs: nothing lost, nothing twice, every label where it belongs, the same order again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suites.v4model.data.made import located, made_samples
from v4model.data.packed import PackedData, pack_samples
from v4model.data.recipe import Recipe
from v4model.errors import DataError
from v4model.ops.shift import shift
from v4model.pack import Pack
from v4model.pack.counts import counts_of

WINDOW = 24
lengths_drawn = st.lists(st.integers(2, WINDOW), min_size=1, max_size=25)
seeds = st.integers(0, 2**32)
recipes = st.builds(
    Recipe,
    window=st.just(WINDOW),
    mode=st.sampled_from(["best-fit", "sequential", "padded"]),
    align=st.sampled_from([1, 2, 4]),
    ranks=st.integers(1, 5),
    seed=seeds,
)


def slow_labels(tokens: tuple[int, ...], supervised: tuple[bool, ...]) -> list[int]:
    """The label of each position of one sample, -1 where none is learned: written without any layout."""
    labels = []
    for position in range(len(tokens)):
        has_next = position + 1 < len(tokens)
        labels.append(tokens[position + 1] if has_next and supervised[position + 1] else -1)
    return labels


def labels_of(pack: Pack) -> torch.Tensor:
    """The labels as the model makes them."""
    source = pack.layout.ahead(1)
    labels = shift(pack.tokens, source=source, fill=-1)
    return torch.where(shift(pack.supervised, source=source, fill=False), labels, -1)


def packs_of(data: PackedData) -> list[Pack]:
    return [data.pack(index) for index in range(len(data))]


@given(lengths=lengths_drawn, seed=seeds, recipe=recipes)
def test_every_sample_comes_out_once_with_its_labels(lengths: list[int], seed: int, recipe: Recipe) -> None:
    samples = made_samples(lengths, seed=seed)
    found = Counter()
    for pack in packs_of(pack_samples(located(samples), recipe=recipe)):
        labels = labels_of(pack)
        assert (pack.tokens.numel(), pack.layout.total % recipe.ranks) == (recipe.row_tokens, 0)
        assert (labels[~pack.layout.real] == -1).all()
        for start, length in zip(pack.layout.starts, pack.layout.lengths, strict=True):
            part = slice(start, start + length)
            assert start % recipe.align == 0
            found[tuple(pack.tokens[part].tolist()), tuple(labels[part].tolist())] += 1
    assert found == Counter((s.tokens, tuple(slow_labels(s.tokens, s.supervised))) for s in samples)


@given(lengths=lengths_drawn, seed=seeds, recipe=recipes)
def test_supervised_counts_do_not_depend_on_the_packing(lengths: list[int], seed: int, recipe: Recipe) -> None:
    samples = made_samples(lengths, seed=seed)
    data = pack_samples(located(samples), recipe=recipe)
    wanted = sum(label >= 0 for s in samples for label in slow_labels(s.tokens, s.supervised))
    assert counts_of(packs_of(data), depths=0).labels == (wanted,)
    assert data.table.labels.sum() == wanted


@given(lengths=st.lists(st.integers(2, 3 * WINDOW), min_size=1, max_size=12), seed=seeds)
def test_split_conserves_tokens_and_says_where_they_stood(lengths: list[int], seed: int) -> None:
    samples = made_samples([2, *lengths], seed=seed)  # one whose label is in its first piece, so that something is left
    data = pack_samples(located(samples), recipe=Recipe(window=WINDOW, too_long="split", unsupervised="drop"))
    table, losses = data.table, data.losses
    assert table.tokens.size + losses.dropped_tokens == 2 + sum(lengths)
    for index in range(table.lengths.size):
        start, length, offset = (int(values[index]) for values in (table.starts, table.lengths, table.offset))
        whole = samples[int(table.record[index])]
        assert tuple(table.tokens[start : start + length].tolist()) == whole.tokens[offset : offset + length]
        assert tuple(table.supervised[start : start + length].tolist()) == whole.supervised[offset : offset + length]
    learned = sum(label >= 0 for s in samples for label in slow_labels(s.tokens, s.supervised))
    # A dropped piece has no label but, perhaps, its first token, which counts as split or never counted.
    assert table.labels.sum() + losses.split_labels == learned


@given(lengths=lengths_drawn, seed=seeds, recipe=recipes)
def test_arrays_hold_all_of_it(lengths: list[int], seed: int, recipe: Recipe) -> None:
    data = pack_samples(located(made_samples(lengths, seed=seed)), recipe=recipe)
    again = PackedData.from_arrays(data.to_arrays(), recipe=recipe)
    assert again.losses == data.losses
    for a, b in zip(packs_of(data), packs_of(again), strict=True):
        assert a.layout == b.layout
        assert torch.equal(a.tokens, b.tokens)
        assert torch.equal(a.supervised, b.supervised)


@given(
    num_packs=st.integers(1, 9),
    seed=seeds,
    ranks=st.integers(1, 4),
    stopped=st.integers(0, 30),
    epochs=st.integers(1, 3),
)
def test_order_is_the_same_after_an_interruption(
    num_packs: int, seed: int, ranks: int, stopped: int, epochs: int
) -> None:
    recipe = Recipe(window=2, mode="padded", seed=seed)
    data = pack_samples(located(made_samples([2] * num_packs, seed=0)), recipe=recipe)
    steps = stopped + 3 * num_packs
    read = [list(islice(data.order(rank=rank, ranks=ranks), steps)) for rank in range(ranks)]
    for rank in range(ranks):
        assert list(islice(data.order(start=stopped, rank=rank, ranks=ranks), steps - stopped)) == read[rank][stopped:]
    together = [pack for step in zip(*read, strict=True) for pack in step]
    for epoch in range(epochs):
        assert sorted(together[epoch * num_packs : (epoch + 1) * num_packs]) == list(range(num_packs))


def test_epochs_and_seeds_differ_in_order() -> None:
    data = pack_samples(located(made_samples([2] * 50, seed=0)), recipe=Recipe(window=2))
    other = replace(data, recipe=replace(data.recipe, seed=1))
    first, second = (list(islice(data.order(start=start), 50)) for start in (0, 50))
    assert first != second
    assert first != list(islice(other.order(), 50))


def test_places_that_do_not_exist_are_refused() -> None:
    data = pack_samples(located(made_samples([2, 3], seed=0)), recipe=Recipe(window=8))
    for index in (-1, 1):
        with pytest.raises(DataError, match=rf"got pack {index}; expected 0 to 0"):
            data.pack(index)
    for place in ({"rank": 2, "ranks": 2}, {"rank": -1}, {"start": -1}):
        with pytest.raises(DataError, match="rank"):
            data.order(**place)


def test_a_full_pack_has_no_boundary_twice() -> None:
    pack = pack_samples(located(made_samples([5, 3], seed=0)), recipe=Recipe(window=8)).pack(0)
    assert sorted(pack.layout.lengths) == [3, 5]
    assert pack.layout.real.all()


def test_a_token_id_of_0_is_a_real_token() -> None:
    (sample,) = made_samples([3], seed=0)
    zeros = replace(sample, tokens=(0, 0, 0))
    pack = pack_samples(located([zeros]), recipe=Recipe(window=5)).pack(0)
    assert pack.layout.lengths == (3,)
    assert labels_of(pack).tolist()[3:] == [-1, -1]
    assert np.count_nonzero(labels_of(pack).numpy() == 0) == sum(sample.supervised[1:])
