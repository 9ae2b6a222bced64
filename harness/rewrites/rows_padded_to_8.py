"""The tokens of every projection are padded with zeros to a multiple of 8, and cut off again."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional as F

from harness.rewrites.registry import Ran, Rewrite, rewritten
from v4model.layers.projections import Projection

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


_MULTIPLE = 8


def _project(projection: Projection, x: Tensor) -> Tensor:
    missing = -x.shape[0] % _MULTIPLE
    padded = F.pad(x, (0, 0) * (x.ndim - 1) + (0, missing))
    return F.linear(padded, projection.weight)[: x.shape[0]]


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, (Projection, "forward", _project))


REWRITE = Rewrite(
    name="rows_padded_to_8",
    title="the tokens of every projection are padded to a multiple of 8",
    apply=_apply,
)
