"""What the properties share: draws from the case's seed, places of tokens, comparisons row by row.

Letters: T tokens of the pack, X width of a depth's values.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.witness import Place

if TYPE_CHECKING:
    from harness.case import Case
    from v4model import PackLayout

_BITS_OF = {8: torch.int64, 4: torch.int32, 2: torch.int16}


def draw(case: Case, purpose: str) -> random.Random:
    """Random choices that follow from the case's seed, of one purpose, so that a draw more moves no other's."""
    return random.Random(f"{purpose} of case {case.seed}")


def generator(case: Case, purpose: str) -> torch.Generator:
    """Random tensors that follow from the case's seed, one generator a purpose."""
    return torch.Generator().manual_seed(draw(case, purpose).getrandbits(62))


def place_of(layout: PackLayout, token: int) -> Place:
    """The sample and position of a token of the pack."""
    return Place(int(layout.sample[token]), int(layout.position[token]), token)


def tokens_of(mask: Tensor) -> Tensor:
    """LongTensor of the indices where a bool tensor [T] is True."""
    return mask.nonzero()[:, 0]


def rows_of_samples(layout: PackLayout, samples: Sequence[int]) -> Tensor:
    """[T] bool: tokens of these samples."""
    return torch.isin(layout.sample, torch.tensor(list(samples), dtype=torch.int64))


def moved_rows(got: Tensor, expected: Tensor) -> Tensor:
    """[T] bool: rows of two tensors [T] or [T, ...] that differ in at least one bit (so NaN equals itself)."""
    bits = _BITS_OF[got.element_size()]
    differ = got.detach().view(bits) != expected.detach().view(bits)
    return differ.reshape(len(differ), math.prod(differ.shape[1:])).any(dim=1)


def row_differences(got: Tensor, expected: Tensor) -> Tensor:
    """[T] largest absolute difference in each row; NaN in only one of the two counts as infinite."""
    got, expected = got.detach(), expected.detach()
    same = (got == expected) | (got.isnan() & expected.isnan())
    difference = (got - expected).abs().masked_fill(same, 0.0).nan_to_num(nan=math.inf)
    return difference.reshape(len(difference), -1).amax(dim=1) if difference.numel() else difference.new_zeros(len(got))
