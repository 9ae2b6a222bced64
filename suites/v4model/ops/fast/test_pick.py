"""The fast choice of rows: to the bit where sums are exact, so that ties abound and their rule shows."""

from __future__ import annotations

import pytest
import torch

from suites.v4model.ops.fast.twins import DEVICE, NARROW, plain
from suites.v4model.support import LAYOUTS
from v4model.layers.indexer import choose_rows
from v4model.pack import PackLayout, visibility_of

pytestmark = pytest.mark.usefixtures("poisoned")


def hold(layout: PackLayout, *, topk: int, heads: int = 3, width: int = 16) -> None:
    """Small whole numbers: every sum is exact in any order, and few scores differ."""
    from v4model.ops.fast.pick import choose_rows as fast

    visible = visibility_of(layout, window=8, ratios=(4,), device=DEVICE).pools[4]
    generator = torch.Generator().manual_seed(1)

    def whole(low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=generator).to(DEVICE, NARROW)

    q, keys = whole(-2, 3, layout.total, heads, width), whole(-1, 2, visible.windows.count, width)
    gate = whole(-2, 3, layout.total, heads).float()
    expected = plain(choose_rows)(q, gate, keys, visible=visible, topk=topk, block_tokens=16)
    found = fast(q, gate, keys, visible=visible, topk=topk, block_tokens=16)
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_equals_the_plain_choice_on_ragged_packs(layout: PackLayout) -> None:
    hold(layout, topk=4)


def test_more_rows_than_topk_by_far() -> None:
    hold(PackLayout.from_lengths([9, 300], total=320), topk=16, heads=4, width=32)


def test_rows_longer_than_a_block_and_tokens_in_several_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    from v4model.ops.fast import pick

    monkeypatch.setattr(pick, "SCORES_AT_ONCE", 400)
    monkeypatch.setattr(pick, "_LARGEST_ROW", 16)
    hold(PackLayout.from_lengths([5, 120, 1, 17], total=150), topk=4)
