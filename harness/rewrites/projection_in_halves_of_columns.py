"""Every projection is two products, of the first half of its outputs and of the second."""

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
    return torch.cat([F.linear(x, half) for half in projection.weight.tensor_split(2)], dim=-1)


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, (Projection, "forward", _project))


REWRITE = Rewrite(
    name="projection_in_halves_of_columns",
    title="every projection is two products, of halves of its outputs",
    apply=_apply,
)
