"""Experts: clamped SwiGLU; all on every token (fixed shapes), or each on its own tokens, here or on its rank."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from v4model.config import V4Config
from v4model.exchange import Exchange
from v4model.layers.projections import Projection
from v4model.layers.router import Routing
from v4model.layers.share import Share
from v4model.ops.blocks import by_blocks
from v4model.ops.swiglu import clamped_swiglu
from v4model.ops.twins import runs_fast


class Experts(nn.Module):
    """Routed experts, weights stacked: gate_up_proj [E, 2I, D] (gate first), down_proj [E, D, I]. No capacity.

    On a group of ranks, rank r computes the r-th of equal runs of experts, for the tokens of all ranks.
    """

    def __init__(self, config: V4Config, *, name: str, share: Share, dtype: torch.dtype) -> None:
        super().__init__()
        self.name, self.limit, self.fixed_shape = name, config.swiglu_limit, config.experts_have_fixed_shape
        width, hidden = config.moe_intermediate_size, config.hidden_size
        self.num_experts = config.n_routed_experts
        self.held = share.experts(self.num_experts)
        self.gate_up_proj = nn.Parameter(torch.empty(len(self.held), 2 * width, hidden, dtype=dtype))
        self.down_proj = nn.Parameter(torch.empty(len(self.held), hidden, width, dtype=dtype))

    def forward(self, x: Tensor, routing: Routing, *, ranks: Exchange, recompute: bool = False) -> Tensor:
        """x [n, D] -> the chosen experts' outputs, weighted and added [n, D]."""
        if ranks.ranks > 1:
            return self._on_their_ranks(x, routing, ranks=ranks)

        def here(x: Tensor, experts: Tensor, weights: Tensor, affinity: Tensor) -> tuple[Tensor]:
            routing = Routing(experts, weights, affinity)
            return (self._all_on_every_token(x, routing) if self.fixed_shape else self._chosen_here(x, routing),)

        return by_blocks(here, x, routing.experts, routing.weights, routing.affinity, recompute=recompute)[0]

    def _chosen_here(self, x: Tensor, routing: Routing) -> Tensor:
        if runs_fast(x):
            from v4model.ops.fast.experts import chosen_experts

            return chosen_experts(
                x,
                routing.experts,
                routing.weights,
                gate_up_proj=self.gate_up_proj,
                down_proj=self.down_proj,
                limit=self.limit,
            )
        token = torch.arange(x.shape[0], device=x.device)[:, None].expand_as(routing.experts).flatten()
        out = self._each_on_its_own(x[token], routing.experts.flatten(), first=0)
        return _add_weighted(out, token, routing.weights.flatten(), num_tokens=x.shape[0])

    def _all_on_every_token(self, x: Tensor, routing: Routing) -> Tensor:
        # No shape depends on what others route to, so a neighbour's tokens cannot move a bit of one's own.
        projected = F.linear(x, self.gate_up_proj.flatten(0, 1)).unflatten(1, (len(self.held), -1))
        gate, up = projected.chunk(2, dim=-1)
        out = torch.einsum("tef,edf->ted", clamped_swiglu(gate, up, limit=self.limit), self.down_proj)
        chosen = out[torch.arange(x.shape[0], device=x.device)[:, None], routing.experts]
        return (routing.weights.to(x.dtype)[:, None, :] @ chosen)[:, 0]

    def _each_on_its_own(self, x: Tensor, expert: Tensor, *, first: int) -> Tensor:
        """Row i of x [N, D] through expert[i], of those held, the first of which is `first` -> [N, D]."""
        order = torch.argsort(expert, stable=True)
        counts = torch.bincount(expert - first, minlength=len(self.held)).tolist()
        done = []
        # Experts without a token run on an empty batch: their parameters keep a gradient edge.
        weights = zip(self.gate_up_proj.unbind(), self.down_proj.unbind(), strict=True)
        for rows, (gate_up_proj, down_proj) in zip(x[order].split(counts), weights, strict=True):
            gate, up = F.linear(rows, gate_up_proj).chunk(2, dim=-1)
            done.append(F.linear(clamped_swiglu(gate, up, limit=self.limit), down_proj))
        return torch.cat(done)[torch.argsort(order)]

    def _on_their_ranks(self, x: Tensor, routing: Routing, *, ranks: Exchange) -> Tensor:
        run = self.num_experts // ranks.ranks
        # Choices in order of their expert, hence of its rank; stable, so that a token's choices keep their order.
        order = torch.argsort(routing.experts.flatten(), stable=True)
        token, expert = order // routing.experts.shape[1], routing.experts.flatten()[order]
        sends = torch.bincount(expert // run, minlength=ranks.ranks)
        receives = ranks.swap_rows(sends, sends=[1] * ranks.ranks, receives=[1] * ranks.ranks, where=self.name)
        there, back = sends.tolist(), receives.tolist()
        theirs = ranks.swap_rows(x[token], sends=there, receives=back, where=self.name)
        their_expert = ranks.swap_rows(expert, sends=there, receives=back, where=self.name)
        out = self._each_on_its_own(theirs, their_expert, first=self.held.start)
        out = ranks.swap_rows(out, sends=back, receives=there, where=self.name)
        return _add_weighted(out, token, routing.weights.flatten()[order], num_tokens=x.shape[0])


def _add_weighted(out: Tensor, token: Tensor, weight: Tensor, *, num_tokens: int) -> Tensor:
    """sum over rows i of token t of weight[i] out[i], [num_tokens, D]."""
    total = out.new_zeros(num_tokens, out.shape[1])
    return total.index_add(0, token, out * weight[:, None].to(out.dtype))


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
        out: Tensor = self.down_proj(clamped_swiglu(self.gate_proj(x), self.up_proj(x), limit=self.limit))
        return out


def held_experts(model: nn.Module) -> dict[str, range]:
    """By name of each stacked expert weight, the experts whose rows the model holds."""
    return {
        f"{path}.{leaf}": module.held
        for path, module in model.named_modules()
        if isinstance(module, Experts)
        for leaf in ("gate_up_proj", "down_proj")
    }
