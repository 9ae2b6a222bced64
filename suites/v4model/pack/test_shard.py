"""ShardPlan: what each rank owns and reaches, against loops over tokens and windows."""

from __future__ import annotations

import dataclasses
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suites.v4model.support import LAYOUTS
from v4model.errors import PackError
from v4model.pack import PackLayout, windows_of
from v4model.pack.shard import ShardPlan, shard_of

every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
any_layout = st.builds(
    lambda lengths, gap, tail: PackLayout.from_lengths(
        lengths, slots=[n + gap for n in lengths], total=sum(lengths) + gap * len(lengths) + tail
    ),
    st.lists(st.integers(1, 13), min_size=1, max_size=5),
    st.integers(0, 3),
    st.integers(0, 9),
)


def plans_of(layout: PackLayout, *, ranks: int) -> list[ShardPlan]:
    return [shard_of(layout, rank=rank, ranks=ranks) for rank in range(ranks)]


def owner_of(token: int, plans: list[ShardPlan]) -> int:
    """The one rank whose tokens include it; none or two are an error."""
    (owner,) = (plan.rank for plan in plans if plan.start <= token < plan.end)
    return owner


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8, 11])
@every_layout
def test_ranks_own_runs_of_equal_size_in_rank_order(layout: PackLayout, ranks: int) -> None:
    plans = plans_of(layout, ranks=ranks)
    tokens = [token for plan in plans for token in range(plan.start, plan.end)]
    assert tokens == list(range(len(tokens)))
    assert {plan.end - plan.start for plan in plans} == {plan.size for plan in plans} == {len(tokens) // ranks}
    assert layout.total <= len(tokens) < layout.total + ranks, "no more padding than it takes"
    for plan in plans:
        assert [plan.bounds(other.rank) for other in plans] == [(other.start, other.end) for other in plans]
        assert plan.layout.total == len(tokens)
        assert (plan.layout.lengths, plan.layout.starts) == (layout.lengths, layout.starts)


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 15, 40, 1000])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@every_layout
def test_halos_are_the_tokens_just_outside(layout: PackLayout, ranks: int, rows: int) -> None:
    plans = plans_of(layout, ranks=ranks)
    total = plans[0].layout.total
    for plan in plans:
        for other in plans:
            before = [t for t in range(total) if other.start - rows <= t < other.start]
            behind = [t for t in range(total) if other.end <= t < other.end + rows]
            assert list(plan.left(rows, of=other.rank)) == before
            assert list(plan.right(rows, of=other.rank)) == behind
        assert plan.left(rows) == plan.left(rows, of=plan.rank)
        assert plan.right(rows) == plan.right(rows, of=plan.rank)


@given(layout=any_layout, ranks=st.integers(1, 9), ratio=st.integers(2, 6))
def test_a_window_belongs_to_the_rank_of_its_last_token(layout: PackLayout, ranks: int, ratio: int) -> None:
    plans = plans_of(layout, ranks=ranks)
    last_tokens = [
        start + (window + 1) * ratio - 1
        for start, length in zip(layout.starts, layout.lengths, strict=True)
        for window in range(length // ratio)
    ]
    owners = [owner_of(token, plans) for token in last_tokens]
    expected = [[row for row, owner in enumerate(owners) if owner == rank] for rank in range(ranks)]
    for plan in plans:
        runs = plan.windows(ratio=ratio)
        assert [list(run) for run in runs] == expected, "every rank knows every rank's"
        assert [row for run in runs for row in run] == list(range(windows_of(layout, ratio=ratio).count))


def test_a_window_over_a_cut_is_the_second_ranks() -> None:
    # Tokens 0-7 and 8-15: the window of tokens 5-8 ends on rank 1, that of 1-4 on rank 0.
    plan = shard_of(PackLayout.from_lengths([1, 15]), rank=0, ranks=2)
    assert plan.windows(ratio=4) == (range(1), range(1, 3))
    assert shard_of(PackLayout.from_lengths([8, 8]), rank=0, ranks=2).windows(ratio=4) == (range(2), range(2, 4))


def test_ranks_of_padding_or_of_short_samples_own_no_window() -> None:
    layout = PackLayout.from_lengths([9, 2, 2], total=32)
    plan = shard_of(layout, rank=3, ranks=4)
    assert plan.windows(ratio=4) == (range(2), range(2, 2), range(2, 2), range(2, 2))
    assert not plan.layout.real[plan.start : plan.end].any()


def test_total_is_padded_to_a_multiple_of_the_ranks_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    shard_of.cache_clear()
    layout = PackLayout.from_lengths([20, 26])
    with caplog.at_level(logging.INFO, logger="v4model.pack.shard"):
        plans = plans_of(layout, ranks=4)
        plans_of(layout, ranks=4)
        plans_of(layout, ranks=2)
    assert caplog.messages == ["padded a pack of 46 tokens by 2, to a multiple of 4 ranks"]
    assert layout.total == 46, "the pack's own layout stays"
    assert [(plan.start, plan.end) for plan in plans] == [(0, 12), (12, 24), (24, 36), (36, 48)]
    assert plans[3].layout.sample[-2:].tolist() == [-1, -1]


def test_more_ranks_than_tokens() -> None:
    plans = plans_of(PackLayout.single(3), ranks=8)
    assert [(plan.start, plan.end) for plan in plans] == [(rank, rank + 1) for rank in range(8)]
    assert [list(plan.left(2)) for plan in plans[:4]] == [[], [0], [0, 1], [1, 2]]


def test_zig_zag_is_refused() -> None:
    with pytest.raises(PackError) as caught:
        shard_of(PackLayout.single(16), rank=0, ranks=2, order="zig-zag")
    assert caught.value.got == "shard order 'zig-zag'"
    assert caught.value.expected == "'contiguous' (zig-zag cuts windows and halos apart)"


@pytest.mark.parametrize(("rank", "ranks"), [(2, 2), (-1, 4), (7, 4), (0, 0)])
def test_a_rank_outside_its_group_is_refused(rank: int, ranks: int) -> None:
    with pytest.raises(PackError) as caught:
        shard_of(PackLayout.single(16), rank=rank, ranks=ranks)
    told = (caught.value.got, caught.value.expected, caught.value.where)
    assert told == (f"rank {rank}", f"0 to {ranks - 1}", f"a group of {ranks}")


def test_frozen_and_made_once() -> None:
    plan = shard_of(PackLayout.single(16), rank=1, ranks=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.rank = 0  # type: ignore[misc]
    assert shard_of(PackLayout.single(16), rank=1, ranks=2) is plan
    assert hash(plan) == hash(ShardPlan(PackLayout.single(16), 1, 2))
