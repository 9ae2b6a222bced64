"""Fast experts against one expert at a time: values, gradients, experts that nobody chose."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from suites.v4model.ops.fast.twins import DEVICE, DTYPES, hold, plain
from suites.v4model.support import randn
from v4model.ops.swiglu import clamped_swiglu

pytestmark = pytest.mark.usefixtures("poisoned")


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "narrow"])
def test_equals_one_expert_at_a_time(dtype: torch.dtype) -> None:
    from v4model.ops.fast.experts import chosen_experts

    generator = torch.Generator().manual_seed(0)
    # Expert 4 of 0 to 4 is nobody's choice.
    experts = torch.stack([torch.randperm(4, generator=generator)[:3] for _ in range(37)]).to(DEVICE)

    def slow(x: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        total = torch.zeros_like(x)
        for choice in range(3):
            of_choice = experts[:, choice]
            projected = torch.einsum("td,tfd->tf", x, gate_up[of_choice])
            hidden = plain(clamped_swiglu)(*projected.chunk(2, dim=1), limit=1.0)
            total = total + weights[:, choice, None].to(x.dtype) * torch.einsum("tf,tdf->td", hidden, down[of_choice])
        return total

    def fast(x: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        return chosen_experts(x, experts, weights, gate_up_proj=gate_up, down_proj=down, limit=1.0)

    # Gradients of narrow inputs that lie at a limit jump; these do not come near one.
    inputs = [randn(37, 48) / 4, randn(37, 3, seed=1), randn(5, 64, 48, seed=2) / 9, randn(5, 48, 32, seed=3)]
    hold(slow, fast, inputs, dtype=dtype, wide=(1,))
