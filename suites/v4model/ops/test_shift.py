"""Shifts inside samples: labels, their masks and their ends."""

from __future__ import annotations

import pytest
import torch

from suites.v4model.support import LAYOUTS
from v4model.ops.shift import shift
from v4model.pack import PackLayout

# The padded pack on which a shift by unpadded boundaries, or a cyclic one, moves tokens between samples.
PADDED = PackLayout.from_lengths([3, 2], slots=[4, 4])
TOKENS = torch.tensor([11, 12, 13, 0, 21, 22, 0, 0])


def test_padded_pack_by_hand() -> None:
    assert shift(TOKENS, source=PADDED.ahead(1), fill=-1).tolist() == [12, 13, -1, -1, 22, -1, -1, -1]
    assert shift(TOKENS, source=PADDED.ahead(2), fill=-1).tolist() == [13, -1, -1, -1, -1, -1, -1, -1]
    assert shift(TOKENS, source=PADDED.ahead(1), fill=0).tolist() == [12, 13, 0, 0, 22, 0, 0, 0]


def test_masks_move_with_their_labels() -> None:
    mask = torch.tensor([False, True, False, True, False, True, True, True])
    moved = shift(mask, source=PADDED.ahead(1), fill=False)
    assert moved.dtype == torch.bool
    assert moved.tolist() == [True, False, False, False, True, False, False, False]


@pytest.mark.parametrize("steps", [1, 2, 3, 8])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_shift_stays_inside_samples(layout: PackLayout, steps: int) -> None:
    tokens = torch.arange(100, 100 + layout.total)
    expected = torch.full((layout.total,), -1)
    for start, length in zip(layout.starts, layout.lengths, strict=True):
        for t in range(length - steps):
            expected[start + t] = tokens[start + t + steps]
    assert torch.equal(shift(tokens, source=layout.ahead(steps), fill=-1), expected)
