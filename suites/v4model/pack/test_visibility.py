"""Visibility: what each query sees, against the specification read one pair of tokens at a time."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suites.v4model.support import LAYOUTS, sees_token, sees_window
from v4model.pack import PackLayout, visibility_of

BUDGET_MS = 20.0


def seen_rows(rows: torch.Tensor, *, columns: int) -> torch.Tensor:
    """[B, columns] bool of the row numbers listed; a number listed twice is an error."""
    seen = torch.zeros(rows.shape[0], columns + 1, dtype=torch.int64)
    seen.scatter_add_(1, torch.where(rows >= 0, rows, columns), torch.ones_like(rows))
    assert not (seen[:, :-1] > 1).any()
    return seen[:, :-1] > 0


def check(layout: PackLayout, *, window: int, ratio: int) -> None:
    visibility = visibility_of(layout, window=window, ratios=(ratio,))
    local, pooled = sees_token(layout, window=window), sees_window(layout, ratio=ratio)
    both = torch.cat([local, pooled], dim=1)
    assert torch.equal(seen_rows(visibility.rows(0, layout.total), columns=layout.total), local)
    rows = visibility.rows(0, layout.total, ratio=ratio)
    assert torch.equal(seen_rows(rows, columns=both.shape[1]), both)
    pool = visibility.pools[ratio]
    assert torch.equal(pool.visible, pooled.sum(1))
    assert torch.equal(seen_rows(pool.rows(0, layout.total), columns=pooled.shape[1]), pooled)
    lo = [int(seen.nonzero()[0]) if seen.any() else token + 1 for token, seen in enumerate(local)]
    assert visibility.local_lo.tolist() == lo


@pytest.mark.parametrize("ratio", [4, 16])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_queries_see_what_the_specification_says(layout: PackLayout, ratio: int) -> None:
    check(layout, window=8, ratio=ratio)


@given(
    lengths=st.lists(st.integers(1, 13), min_size=1, max_size=5),
    gap=st.integers(0, 3),
    window=st.integers(1, 9),
    ratio=st.integers(2, 6),
)
def test_queries_of_any_layout_see_what_the_specification_says(
    lengths: list[int], gap: int, window: int, ratio: int
) -> None:
    check(PackLayout.from_lengths(lengths, slots=[n + gap for n in lengths]), window=window, ratio=ratio)


def test_blocks_of_queries_see_the_same_rows() -> None:
    layout = LAYOUTS["slots"]
    visibility = visibility_of(layout, window=8, ratios=(4,))
    columns = layout.total + visibility.pools[4].windows.count
    whole = seen_rows(visibility.rows(0, layout.total, ratio=4), columns=columns)
    for start in range(0, layout.total, 5):
        end = min(start + 5, layout.total)
        assert torch.equal(seen_rows(visibility.rows(start, end, ratio=4), columns=columns), whole[start:end])


@pytest.mark.parametrize(("start", "end"), [(0, 47), (0, 12), (7, 8), (12, 35), (35, 47), (40, 40)])
@pytest.mark.parametrize("ratio", [0, 4])
def test_a_part_sees_the_rows_of_the_whole_pack(ratio: int, start: int, end: int) -> None:
    layout = LAYOUTS["slots"]
    visibility = visibility_of(layout, window=8, ratios=(4,))
    part = visibility.part(start, end)
    columns = layout.total + visibility.pools[4].windows.count
    whole = seen_rows(visibility.rows(0, layout.total, ratio=ratio), columns=columns)
    assert torch.equal(seen_rows(part.rows(0, end - start, ratio=ratio), columns=columns), whole[start:end])
    middle = (end - start) // 2
    assert torch.equal(
        seen_rows(part.rows(middle, end - start, ratio=ratio), columns=columns), whole[start + middle : end]
    )
    assert part.pools[4].windows is visibility.pools[4].windows, "all rows stay in sight"
    picks = torch.arange(3).repeat(end - start, 1)
    assert (part.rows(0, end - start, ratio=4, picks=picks)[:, -3:] == layout.total + torch.arange(3)).all()


def test_picks_take_the_place_of_all_visible_windows() -> None:
    layout = PackLayout.from_lengths([9, 5])
    visibility = visibility_of(layout, window=2, ratios=(4,))
    picks = torch.full((14, 3), -1)
    picks[8, 0] = 1
    rows = visibility.rows(7, 9, ratio=4, picks=picks)
    assert rows.tolist() == [[6, 7, -1, -1, -1], [7, 8, 14 + 1, -1, -1]]


def test_a_window_in_progress_is_not_visible() -> None:
    pool = visibility_of(PackLayout.from_lengths([3, 9]), window=8, ratios=(4,)).pools[4]
    assert pool.visible.tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2]


def test_frozen() -> None:
    visibility = visibility_of(PackLayout.from_lengths([9, 5]), window=8, ratios=(4,))
    pool = visibility.pools[4]
    for value, field in [(visibility, "window"), (visibility, "local_lo"), (visibility, "pools"), (pool, "visible")]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field, getattr(value, field))
    with pytest.raises(TypeError):
        visibility.pools[4] = pool  # type: ignore[index]


def test_made_once_for_equal_layouts() -> None:
    tables = [visibility_of(PackLayout.from_lengths([9, 5]), window=8, ratios=(4, 16)) for _ in range(2)]
    assert tables[0] is tables[1]
    assert visibility_of(PackLayout.from_lengths([9, 6]), window=8, ratios=(4, 16)) is not tables[0]
    assert visibility_of(PackLayout.from_lengths([9, 5]), window=7, ratios=(4, 16)) is not tables[0]


def thousand_samples(trial: int) -> PackLayout:
    cuts = torch.randperm(131_071, generator=torch.Generator().manual_seed(trial))[:999].sort().values + 1
    return PackLayout.from_cu_seqlens(torch.cat([torch.tensor([0]), cuts, torch.tensor([131_072])]))


def one_sample(trial: int) -> PackLayout:
    return PackLayout.single(131_072 + trial)


@pytest.mark.parametrize("build", [thousand_samples, one_sample], ids=["1,000 samples", "one sample"])
def test_131072_tokens_in_time(
    build: Callable[[int], PackLayout], record_property: Callable[[str, object], None]
) -> None:
    times = []
    for trial in range(5):  # a layout never seen before each time, so that no cache helps
        layout = build(trial)
        start = time.process_time()
        visibility_of(layout, window=128, ratios=(4, 128))
        times.append((time.process_time() - start) * 1e3)
    record_property("visibility_131072_tokens_ms", round(min(times), 2))
    assert min(times) < BUDGET_MS, f"{min(times):.1f} ms"
