"""Weights without bias: linear, grouped linear, and the weight of an RMS norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from v4model.ops.norm import rms_norm
from v4model.ops.precision import wide_dtype


class Projection(nn.Module):
    """x [..., in] -> [..., out], weight [out, in]."""

    def __init__(self, in_features: int, out_features: int, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


class GroupedProjection(nn.Module):
    """x [T, G, in] -> [T, G, out], one matrix a group, weight [G*out, in] group-major (section 2.3)."""

    def __init__(self, in_features: int, out_features: int, *, groups: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.groups = groups
        self.weight = nn.Parameter(torch.empty(groups * out_features, in_features, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("tgi,goi->tgo", x, self.weight.unflatten(0, (self.groups, -1)))


class RMSNorm(nn.Module):
    """RMS norm with a weight kept in float32 or better."""

    def __init__(self, features: int, *, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(features, dtype=wide_dtype(dtype)))

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, eps=self.eps, weight=self.weight)
