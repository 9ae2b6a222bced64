"""A compressor's forward pass, open to faults in a part of it or in some compressors only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from torch import Tensor

from v4model.layers.compressor import Compressor
from v4model.layers.context import PackContext
from v4model.ops.pool import pool_overlapping_windows, pool_windows
from v4model.ops.rope import rotate
from v4model.pack.windows import Windows

Norm: TypeAlias = Callable[[Tensor], Tensor]

healthy = Compressor.forward
"""What `Compressor.forward` is without a fault."""


class Pool(Protocol):
    """Tokens to rows, as in `v4model.ops.pool`."""

    def __call__(self, kv: Tensor, gate: Tensor, position_bias: Tensor, *, windows: Windows) -> Tensor: ...


def compressed(
    compressor: Compressor,
    x: Tensor,
    *,
    context: PackContext,
    where: str,
    pool: Pool | None = None,
    norm: Norm | None = None,
) -> Tensor:
    """`Compressor.forward` with another way to pool the windows, or to norm the rows [w, width]."""
    pool = pool or (pool_overlapping_windows if compressor.overlaps else pool_windows)
    norm = norm or compressor.kv_norm
    plan = context.plan
    windows = context.own_windows[compressor.ratio].starting_at(plan.end - x.shape[0])
    rows = pool(compressor.kv_proj(x), compressor.gate_proj(x), compressor.position_bias, windows=windows)
    rows = rotate(norm(rows), context.pool_rotation[compressor.ratio])
    counts = [len(owned) for owned in plan.windows(ratio=compressor.ratio)]
    return context.ranks.cp.all_rows(rows, counts=counts, where=where)
