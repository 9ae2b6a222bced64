"""Windows: runs of `ratio` tokens counted from each sample's own start."""

from __future__ import annotations

import pytest
import torch

from suites.v4model.support import LAYOUTS
from v4model.pack import PackLayout, windows_of


def test_windows_start_where_their_sample_does() -> None:
    windows = windows_of(PackLayout.from_lengths([9, 3, 4], slots=[11, 3, 4]), ratio=4)
    assert windows.first_token.tolist() == [0, 4, 14]  # not 0, 4, 8, 12: the pack's own grid means nothing
    assert windows.index.tolist() == [0, 1, 0]
    assert windows.sample.tolist() == [0, 0, 2]
    assert windows.position.tolist() == [0, 4, 0]
    assert windows.count == 3


def test_first_window_of_a_sample_has_no_predecessor() -> None:
    windows = windows_of(PackLayout.from_lengths([9, 8]), ratio=4)
    assert windows.slots().tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [9, 10, 11, 12], [13, 14, 15, 16]]
    none = [-1] * 4
    assert windows.slots(back=1).tolist() == [none, [0, 1, 2, 3], none, [9, 10, 11, 12]]
    assert windows.slots(back=2).tolist() == [none] * 4


@pytest.mark.parametrize("ratio", [2, 4, 16])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_windows_follow_the_definition(layout: PackLayout, ratio: int) -> None:
    expected = [
        (start + index * ratio, index, sample)
        for sample, (start, length) in enumerate(zip(layout.starts, layout.lengths, strict=True))
        for index in range(length // ratio)
    ]
    windows = windows_of(layout, ratio=ratio)
    found = zip(windows.first_token.tolist(), windows.index.tolist(), windows.sample.tolist(), strict=True)
    assert list(found) == expected
    slots = windows.slots()
    assert slots.shape == (len(expected), ratio)
    assert torch.equal(layout.sample[slots], windows.sample[:, None].expand(-1, ratio))


def test_no_window_is_an_empty_table() -> None:
    windows = windows_of(LAYOUTS["padding only"], ratio=4)
    assert windows.count == 0
    assert windows.slots().shape == windows.slots(back=1).shape == (0, 4)


def test_a_part_keeps_its_windows_and_their_numbers() -> None:
    windows = windows_of(PackLayout.from_lengths([9, 3, 13]), ratio=4)
    part = windows.part(range(1, 4))
    assert part.first_token.tolist() == [4, 12, 16]
    assert part.index.tolist() == [1, 0, 1]
    assert part.sample.tolist() == [0, 2, 2]
    assert part.slots(back=1).tolist() == [[0, 1, 2, 3], [-1] * 4, [12, 13, 14, 15]]
    assert windows.part(range(2, 2)).count == 0


def test_windows_for_tensors_that_start_later() -> None:
    # Row 0 of the tensor is token 10: a window and the one before it move by 10, absent ones stay absent.
    part = windows_of(PackLayout.from_lengths([9, 3, 13]), ratio=4).part(range(2, 4)).starting_at(10)
    assert part.slots().tolist() == [[2, 3, 4, 5], [6, 7, 8, 9]]
    assert part.slots(back=1).tolist() == [[-1] * 4, [2, 3, 4, 5]]
    assert part.position.tolist() == [0, 4], "positions are the sample's"
