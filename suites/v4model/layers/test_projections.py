"""Projections: the grouped one is group-major, norm weights stay wide."""

from __future__ import annotations

import torch

from suites.v4model.support import randn, relative_error
from v4model.layers.projections import GroupedProjection, Projection, RMSNorm


def test_groups_are_consecutive_and_apart() -> None:
    grouped = GroupedProjection(6, 4, groups=3, dtype=torch.float64)
    with torch.no_grad():
        grouped.weight.copy_(randn(12, 6))
    x = randn(5, 3, 6, seed=1)
    found = grouped(x)
    expected = torch.stack([x[:, g] @ grouped.weight[4 * g : 4 * (g + 1)].T for g in range(3)], dim=1)
    assert relative_error(found, expected) < 1e-14


def test_only_norm_weights_stay_float32() -> None:
    assert Projection(3, 2, dtype=torch.bfloat16).weight.dtype == torch.bfloat16
    assert RMSNorm(3, eps=1e-6, dtype=torch.bfloat16).weight.dtype == torch.float32
    assert RMSNorm(3, eps=1e-6, dtype=torch.float64).weight.dtype == torch.float64
