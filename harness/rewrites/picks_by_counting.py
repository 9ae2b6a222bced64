"""A row's place among the picks is the number of rows that come before it: no sort, the same tie rule."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.rewrites.registry import Ran, Rewrite, rewritten
from v4model.layers import indexer

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _picked(scores: Tensor, *, rows: Tensor, topk: int) -> Tensor:
    column = torch.arange(scores.shape[1], device=scores.device)
    one, other = scores[:, :, None], scores[:, None, :]
    before = (other > one) | ((other == one) & (column[None, :] < column[:, None]))
    place = before.sum(2)
    # As many columns as are asked for, and one more for whatever comes behind.
    picks = rows.new_full((rows.shape[0], topk + 1), -1)
    return picks.scatter(1, place.clamp_max(topk), rows)[:, :topk]


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, (indexer, "pick_rows", _picked))


REWRITE = Rewrite(
    name="picks_by_counting",
    title="picks are ranked by counting the rows that come before",
    apply=_apply,
    kinds=("all", "csa"),
)
