"""Statistics: counts that add up, against slow counts over the packs themselves."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from suites.v4model.data.made import located, made_samples
from v4model.data.packed import pack_samples
from v4model.data.recipe import Recipe
from v4model.data.stats import stats_of
from v4model.pack import windows_of
from v4model.pack.counts import counts_of

RATIOS = (4, 16)
lengths_drawn = st.lists(st.integers(2, 48), min_size=1, max_size=25)
recipes = st.builds(
    Recipe,
    window=st.just(48),
    mode=st.sampled_from(["best-fit", "sequential", "padded"]),
    align=st.sampled_from([1, 4]),
    ranks=st.sampled_from([1, 5]),
    seed=st.integers(0, 9),
)


@given(lengths=lengths_drawn, recipe=recipes)
def test_counts_are_those_of_the_packs(lengths: list[int], recipe: Recipe) -> None:
    data = pack_samples(located(made_samples(lengths, seed=1)), recipe=recipe)
    stats, packs = stats_of(data, ratios=RATIOS), [data.pack(index) for index in range(len(data))]
    assert stats.packs == len(packs) == len(stats.fills) == len(stats.samples_per_pack)
    assert stats.total_tokens == sum(pack.layout.total for pack in packs)
    assert stats.real_tokens == sum(pack.layout.real_tokens for pack in packs) == sum(lengths)
    assert stats.total_tokens == stats.real_tokens + stats.alignment_tokens + stats.padding_tokens
    assert stats.alignment_tokens == sum(-length % recipe.align for length in lengths)
    assert (stats.supervised_tokens,) == counts_of(packs, depths=0).labels
    assert list(stats.samples_per_pack) == [pack.layout.num_samples for pack in packs]
    assert sum(bucket.samples for bucket in stats.lengths) == len(lengths)
    assert sum(bucket.tokens for bucket in stats.lengths) == sum(lengths)
    for bucket in stats.lengths:
        inside = [length for length in lengths if bucket.shortest <= length < 2 * bucket.shortest]
        assert (bucket.samples, bucket.tokens) == (len(inside), sum(inside))


@given(lengths=lengths_drawn, recipe=recipes)
def test_windows_are_those_of_the_model(lengths: list[int], recipe: Recipe) -> None:
    data = pack_samples(located(made_samples(lengths, seed=1)), recipe=recipe)
    layouts = [data.layout(index) for index in range(len(data))]
    for found in stats_of(data, ratios=RATIOS).without_window:
        windows = [windows_of(layout, ratio=found.ratio) for layout in layouts]
        assert found.packs == sum(each.count == 0 for each in windows)
        having = sum(each.sample.unique().numel() for each in windows)
        assert found.samples == len(lengths) - having
        assert found.tokens_outside == sum(lengths) - found.ratio * sum(each.count for each in windows)
        positions = np.concatenate([np.arange(length) for length in lengths])
        assert found.tokens_without_row == int(((positions + 1) // found.ratio == 0).sum())


@given(lengths=lengths_drawn, recipe=recipes)
def test_layouts_are_what_their_mode_packs(lengths: list[int], recipe: Recipe) -> None:
    samples = located(made_samples(lengths, seed=1))
    for layout in stats_of(pack_samples(samples, recipe=recipe), ratios=RATIOS).layouts:
        other = Recipe(window=48, mode=layout.mode, align=recipe.align, ranks=recipe.ranks, seed=recipe.seed)
        stats = stats_of(pack_samples(samples, recipe=other), ratios=())
        assert (layout.rows, layout.total_tokens) == (stats.packs, stats.total_tokens)
        assert layout.real_share == stats.real_tokens / stats.total_tokens
        assert layout.supervised_share == stats.supervised_tokens / stats.total_tokens


def test_padded_against_packed() -> None:
    data = pack_samples(located(made_samples([10, 30, 20, 2], seed=0)), recipe=Recipe(window=32))
    stats = stats_of(data, ratios=())
    assert [(layout.mode, layout.rows) for layout in stats.layouts] == [
        ("padded", 4),
        ("sequential", 3),
        ("best-fit", 2),
    ]
    assert (stats.packs, stats.least_packs) == (2, 2)
    padded, _, best = stats.layouts
    assert (padded.predicted_gain, best.predicted_gain) == (1.0, 2.0)
    assert (padded.real_tokens_in_budget, best.real_tokens_in_budget) == (31, 62)
    assert best.supervised_tokens_in_budget == stats.supervised_tokens
    assert padded.supervised_tokens_in_budget == round(stats.supervised_tokens / 2)
    assert stats.fills[-1] == min(stats.fills)
