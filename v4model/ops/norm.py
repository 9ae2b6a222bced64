"""RMS normalisation."""

from __future__ import annotations

import torch
from torch import Tensor

from v4model.ops.precision import wide
from v4model.ops.twins import has_fast_twin


@has_fast_twin("norm")
def rms_norm(x: Tensor, *, eps: float, weight: Tensor | None = None) -> Tensor:
    """x / rms(x) over the last axis, times `weight`; computed in float32 or better, returned in x's dtype."""
    y = wide(x)
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)
    return (y if weight is None else y * weight).to(x.dtype)
