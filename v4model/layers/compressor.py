"""Compressor: windows of tokens to pooled rows, with or without overlap."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from v4model.config import CSA_RATIO, V4Config
from v4model.layers.context import PackContext
from v4model.layers.projections import Projection, RMSNorm
from v4model.ops.pool import pool_overlapping_windows, pool_windows
from v4model.ops.precision import wide_dtype
from v4model.ops.rope import rotate


class Compressor(nn.Module):
    """Tokens to pooled rows, normed and rotated (CSA eq. 9-12 at ratio 4, else HCA eq. 20-23)."""

    def __init__(self, config: V4Config, *, ratio: int, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.ratio = ratio
        self.overlaps = ratio == CSA_RATIO
        projected = 2 * width if self.overlaps else width
        self.kv_proj = Projection(config.hidden_size, projected, dtype=dtype)
        self.gate_proj = Projection(config.hidden_size, projected, dtype=dtype)
        self.position_bias = nn.Parameter(torch.empty(ratio, projected, dtype=wide_dtype(dtype)))
        self.kv_norm = RMSNorm(width, eps=config.rms_norm_eps, dtype=dtype)

    def forward(self, x: Tensor, *, context: PackContext, where: str) -> Tensor:
        """x [h + n, D] of the rank's tokens and the halo before them -> rows [W, width] of the whole pack."""
        pool = pool_overlapping_windows if self.overlaps else pool_windows
        plan = context.plan
        windows = context.own_windows[self.ratio].starting_at(plan.end - x.shape[0])
        rows = pool(self.kv_proj(x), self.gate_proj(x), self.position_bias, windows=windows)
        rows = rotate(self.kv_norm(rows), context.pool_rotation[self.ratio])
        counts = [len(owned) for owned in plan.windows(ratio=self.ratio)]
        return context.ranks.cp.all_rows(rows, counts=counts, where=where)
