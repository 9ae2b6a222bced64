"""Experts run one after another on every token, the last one first, and add up in that order."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from harness.rewrites.registry import Ran, Rewrite, rewritten
from v4model.layers.experts import Experts
from v4model.layers.router import Routing
from v4model.ops.swiglu import clamped_swiglu

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _one_after_another(experts: Experts, x: Tensor, routing: Routing) -> Tensor:
    total = torch.zeros_like(x)
    for number in reversed(range(experts.num_experts)):
        gate, up = F.linear(x, experts.gate_up_proj[number]).chunk(2, dim=-1)
        out = F.linear(clamped_swiglu(gate, up, limit=experts.limit), experts.down_proj[number])
        # On every token, so that no shape depends on what others route to; a token's sum runs over its experts alone.
        chosen = routing.experts == number
        weight = torch.where(chosen, routing.weights, 0).sum(1, keepdim=True).to(x.dtype)
        total = torch.where(chosen.any(1, keepdim=True), total + weight * out, total)
    return total


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, (Experts, "_all_on_every_token", _one_after_another))


REWRITE = Rewrite(
    name="experts_last_first",
    title="experts run one after another, the last one first",
    apply=_apply,
)
