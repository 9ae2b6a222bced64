"""Clamped SwiGLU (section 2.1)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from v4model.ops.twins import has_fast_twin


@has_fast_twin("swiglu")
def clamped_swiglu(gate: Tensor, up: Tensor, *, limit: float) -> Tensor:
    """SiLU(min(gate, limit)) * clamp(up, -limit, limit): clamped before the product, the gate from above only."""
    return F.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)
