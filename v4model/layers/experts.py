"""Experts: clamped SwiGLU, all of them on every token (fixed shapes) or each on its own tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from v4model.config import V4Config
from v4model.layers.projections import Projection
from v4model.layers.router import Routing
from v4model.ops.swiglu import clamped_swiglu


class Experts(nn.Module):
    """Routed experts, weights stacked: gate_up_proj [E, 2I, D] (gate first), down_proj [E, D, I]. No capacity."""

    def __init__(self, config: V4Config, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.limit, self.fixed_shape = (
            config.swiglu_limit,
            config.experts_have_fixed_shape,
        )
        experts, width, hidden = (
            config.n_routed_experts,
            config.moe_intermediate_size,
            config.hidden_size,
        )
        self.gate_up_proj = nn.Parameter(
            torch.empty(experts, 2 * width, hidden, dtype=dtype)
        )
        self.down_proj = nn.Parameter(torch.empty(experts, hidden, width, dtype=dtype))

    def forward(self, x: Tensor, routing: Routing) -> Tensor:
        """x [T, D] -> the chosen experts' outputs, weighted and added [T, D]."""
        return (
            self._all_on_every_token(x, routing)
            if self.fixed_shape
            else self._each_on_its_own(x, routing)
        )

    def _all_on_every_token(self, x: Tensor, routing: Routing) -> Tensor:
        # No shape depends on what others route to, so a neighbour's tokens cannot move a bit of one's own.
        gate, up = torch.einsum("td,efd->tef", x, self.gate_up_proj).chunk(2, dim=-1)
        out = torch.einsum(
            "tef,edf->ted", clamped_swiglu(gate, up, limit=self.limit), self.down_proj
        )
        chosen = out[
            torch.arange(x.shape[0], device=x.device)[:, None], routing.experts
        ]
        return torch.einsum("tk,tkd->td", routing.weights.to(x.dtype), chosen)

    def _each_on_its_own(self, x: Tensor, routing: Routing) -> Tensor:
        total = torch.zeros_like(x)
        # Experts without a token run on an empty batch: their parameters keep a gradient edge.
        for expert, (gate_up, down) in enumerate(
            zip(self.gate_up_proj, self.down_proj, strict=True)
        ):
            token, choice = (routing.experts == expert).nonzero(as_tuple=True)
            gate, up = F.linear(x[token], gate_up).chunk(2, dim=-1)
            out = F.linear(clamped_swiglu(gate, up, limit=self.limit), down)
            total = total.index_add(
                0, token, out * routing.weights[token, choice, None].to(x.dtype)
            )
        return total


class SharedExpert(nn.Module):
    """The expert every token visits, added unweighted."""

    def __init__(self, config: V4Config, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.limit = config.swiglu_limit
        hidden, width = config.hidden_size, config.moe_intermediate_size
        self.gate_proj = Projection(hidden, width, dtype=dtype)
        self.up_proj = Projection(hidden, width, dtype=dtype)
        self.down_proj = Projection(width, hidden, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(
            clamped_swiglu(self.gate_proj(x), self.up_proj(x), limit=self.limit)
        )
        return out
