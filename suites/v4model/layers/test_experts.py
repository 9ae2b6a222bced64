"""Experts: both ways to run them are one function, and experts without a token still learn nothing, not None."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from suites.v4model.support import leaf, randn, relative_error
from v4model import presets
from v4model.exchange import Ranks
from v4model.layers import experts as experts_module
from v4model.layers.experts import Experts, SharedExpert
from v4model.layers.router import Routing
from v4model.layers.share import Share

CONFIG = presets.tiny()
E, D, WIDTH, LIMIT = 8, 32, 24, 0.5  # a limit that clamps often
ONE = Ranks.one().ep


def twins() -> tuple[Experts, Experts]:
    """The fixed-shape experts and the loop over experts, with equal weights."""
    pair = tuple(
        Experts(
            replace(CONFIG, swiglu_limit=LIMIT, fixed_shape_experts=fixed),
            name="experts",
            share=Share(),
            dtype=torch.float64,
        )
        for fixed in (True, False)
    )
    for experts in pair:
        with torch.no_grad():
            experts.gate_up_proj.copy_(0.3 * randn(E, 2 * WIDTH, D))
            experts.down_proj.copy_(0.3 * randn(E, D, WIDTH, seed=1))
    return pair


def routing(*, tokens: int, last_expert: int = E) -> Routing:
    """Two distinct random experts a token, none from `last_expert` on."""
    draws = torch.rand(tokens, last_expert, generator=torch.Generator().manual_seed(2))
    return Routing(draws.argsort(1)[:, :2], randn(tokens, 2, seed=3).abs().requires_grad_(), torch.empty(0))


def slow(experts: Experts, x: torch.Tensor, route: Routing) -> torch.Tensor:
    """Token by token, expert by expert: W2(SiLU(min(W1 x, L)) * clamp(W3 x, -L, L))."""
    rows = []
    for t in range(x.shape[0]):
        row = torch.zeros(D, dtype=torch.float64)
        for choice, expert in enumerate(route.experts[t].tolist()):
            gate = torch.minimum(experts.gate_up_proj[expert, :WIDTH] @ x[t], torch.tensor(LIMIT))
            up = (experts.gate_up_proj[expert, WIDTH:] @ x[t]).clamp(-LIMIT, LIMIT)
            row = row + route.weights[t, choice] * (experts.down_proj[expert] @ (gate * torch.sigmoid(gate) * up))
        rows.append(row)
    return torch.stack(rows)


def test_both_equal_the_definition() -> None:
    x, route = randn(13, D, seed=5), routing(tokens=13)
    for experts in twins():
        assert relative_error(experts(x, route, ranks=ONE), slow(experts, x, route)) < 1e-14


@pytest.mark.parametrize(("tokens", "last_expert"), [(40, E), (9, 3), (1, 2)])
def test_twins_agree_in_value_and_gradient(tokens: int, last_expert: int) -> None:
    x, route = leaf(tokens, D, seed=5), routing(tokens=tokens, last_expert=last_expert)
    upstream = randn(tokens, D, seed=6)
    results = []
    for experts in twins():
        out = experts(x, route, ranks=ONE)
        inputs = [x, route.weights, experts.gate_up_proj, experts.down_proj]
        results.append([out, *torch.autograd.grad((out * upstream).sum(), inputs)])
    for fixed, loop in zip(*results, strict=True):
        assert relative_error(fixed, loop) < 1e-12
    for result in results:
        unused = [grad[expert] for grad in result[3:] for expert in range(E) if not (route.experts == expert).any()]
        assert len(unused) >= 2 * (E - last_expert)
        assert not any(grad.any() for grad in unused), "zero, and there"


def test_fixed_shape_moves_no_bit_when_a_neighbour_is_routed_elsewhere() -> None:
    fixed, _ = twins()
    x, route = randn(20, D, seed=5), routing(tokens=20)
    moved = route.experts.clone()
    moved[10:] = torch.tensor([6, 7])
    before, after = fixed(x, route, ranks=ONE), fixed(x, replace(route, experts=moved), ranks=ONE)
    assert torch.equal(before[:10], after[:10])
    assert not torch.equal(before[10:], after[10:])


def test_fixed_shape_runs_no_grouped_product_where_operations_are_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    # In a grouped product the rows that a matrix unit works on together move with the routing of other tokens.
    fixed, loop = twins()
    x, route = randn(20, D, seed=5), routing(tokens=20)
    plain = fixed(x, route, ranks=ONE)
    asked: list[Tensor] = []

    def chosen_experts(x: Tensor, experts: Tensor, weights: Tensor, **_: Any) -> Tensor:
        asked.append(experts)
        return x + weights.sum()

    module = SimpleNamespace(chosen_experts=chosen_experts)
    monkeypatch.setitem(sys.modules, "v4model.ops.fast.experts", module)
    monkeypatch.setattr(experts_module, "runs_fast", lambda _: True)
    assert torch.equal(fixed(x, route, ranks=ONE), plain)
    assert not asked
    loop(x, route, ranks=ONE)
    assert len(asked) == 1


def test_no_capacity_however_many_tokens_choose_one_expert() -> None:
    x = randn(1, D, seed=5).expand(500, D)
    for experts in twins():
        route = Routing(torch.tensor([[3, 1]] * 500), torch.ones(500, 2).double(), torch.empty(0))
        out = experts(x, route, ranks=ONE)
        assert relative_error(out, out[:1].expand(500, D)) < 1e-14


def test_shared_expert_is_the_same_function_unweighted() -> None:
    routed, _ = twins()
    shared = SharedExpert(replace(CONFIG, swiglu_limit=LIMIT), dtype=torch.float64)
    with torch.no_grad():
        shared.gate_proj.weight.copy_(routed.gate_up_proj[4, :WIDTH])
        shared.up_proj.weight.copy_(routed.gate_up_proj[4, WIDTH:])
        shared.down_proj.weight.copy_(routed.down_proj[4])
    x = randn(6, D, seed=5)
    only = Routing(torch.full((6, 1), 4), torch.ones(6, 1).double(), torch.empty(0))
    assert relative_error(shared(x), slow(routed, x, only)) < 1e-14
