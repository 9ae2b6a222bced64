"""Sinkhorn-Knopp normalisation of mHC's mixing matrices (section 2.2)."""

from __future__ import annotations

from torch import Tensor

from v4model.ops.twins import has_fast_twin


@has_fast_twin("sinkhorn")
def sinkhorn(x: Tensor, *, iterations: int, eps: float) -> Tensor:
    """Columns of x [..., K, K] normalised once, then (iterations - 1) x rows and columns, each by (sum + eps)."""
    x = x / (x.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        x = x / (x.sum(-1, keepdim=True) + eps)
        x = x / (x.sum(-2, keepdim=True) + eps)
    return x
