"""RMS norms divide by the square root of the squared length over the width, instead of multiplying by its inverse."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.rewrites.registry import Ran, Rewrite, rewritten
from v4model.layers import hyper, projections
from v4model.layers.attention import base
from v4model.ops.precision import wide

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _norm(x: Tensor, *, eps: float, weight: Tensor | None = None) -> Tensor:
    y = wide(x)
    y = y / torch.sqrt((y * y).sum(-1, keepdim=True) / y.shape[-1] + eps)
    return (y if weight is None else y * weight).to(x.dtype)


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, *((owner, "rms_norm", _norm) for owner in (base, hyper, projections)))


REWRITE = Rewrite(name="norm_by_length", title="RMS norms divide by a length", apply=_apply)
