"""Every projection is two products, of the first half of the tokens and of the second."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from harness.rewrites.registry import Ran, Rewrite, rewritten
from v4model.layers.projections import Projection

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _project(projection: Projection, x: Tensor) -> Tensor:
    return torch.cat([F.linear(half, projection.weight) for half in x.tensor_split(2)])


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, (Projection, "forward", _project))


REWRITE = Rewrite(
    name="projection_in_halves_of_rows",
    title="every projection is two products, of halves of the tokens",
    apply=_apply,
)
