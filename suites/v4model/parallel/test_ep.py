"""Expert parallelism: experts on the ranks that hold them give what all experts on one rank give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from suites.v4model.parallel.ranks import BOUND, CONFIG, Step, check_step, drawn_pack, masked_pack, on_mesh, part_of
from suites.v4model.support import leaf, randn, relative_error, stirred
from v4model import PackLayout
from v4model.exchange import Exchange, Ranks
from v4model.layers.experts import Experts
from v4model.layers.router import Routing
from v4model.layers.share import Share
from v4model.parallel.groups import Member, Mesh
from v4model.parallel.in_process import InProcessWorld

E, K, D, WIDTH, F64, I64 = 8, 2, CONFIG.hidden_size, CONFIG.moe_intermediate_size, 8, 8


def experts_of(share: Share) -> Experts:
    """Random weights, the same for an expert whoever holds it."""
    made = Experts(CONFIG, name="experts", share=share, dtype=torch.float64)
    with torch.no_grad():
        for held, number in enumerate(made.held):
            made.gate_up_proj[held] = randn(2 * WIDTH, D, seed=10 + number)
            made.down_proj[held] = randn(D, WIDTH, seed=30 + number)
    return made


def routing(tokens: int, *, among: Sequence[int], seed: int) -> Routing:
    """Two distinct experts of `among` a token."""
    draws = torch.rand(tokens, len(among), generator=torch.Generator().manual_seed(seed))
    experts = torch.tensor(among)[draws.argsort(1)[:, :K]]
    return Routing(experts, randn(tokens, K, seed=seed).abs().requires_grad_(), torch.empty(0))


# By rank: its number of tokens, and the experts they choose from (rank r of four holds 2r and 2r + 1).
CASES: dict[str, list[tuple[int, Sequence[int]]]] = {
    "uneven": [(9, range(8)), (1, range(8)), (17, range(8)), (4, range(8))],
    "a rank without tokens": [(5, range(8)), (0, range(8)), (8, range(8)), (3, range(8))],
    "nobody chooses the experts of a rank": [(5, (0, 1, 4, 5, 6, 7)), (6, (0, 1, 5, 7)), (7, (0, 6)), (3, (4, 5))],
    "all choose the experts of one rank": [(5, (6, 7)), (6, (6, 7)), (7, (6, 7)), (3, (6, 7))],
    "each its own": [(4, (0, 1)), (4, (2, 3)), (4, (4, 5)), (4, (6, 7))],
    "no token anywhere": [(0, range(8))] * 4,
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_experts_on_their_ranks_equal_all_on_one(case: list[tuple[int, Sequence[int]]]) -> None:
    shares = [Share(expert_rank=rank, expert_ranks=4) for rank in range(4)]
    parts, whole = [experts_of(share) for share in shares], experts_of(Share())
    xs = [leaf(tokens, D, seed=rank) for rank, (tokens, _) in enumerate(case)]
    routes = [routing(tokens, among=among, seed=50 + rank) for rank, (tokens, among) in enumerate(case)]

    def forward(member: Member) -> Tensor:
        return parts[member.rank](xs[member.rank], routes[member.rank], ranks=member.ranks.ep)

    world = InProcessWorld(Mesh(cp=4, ep=4))
    outs = world.run(forward)
    grads = world.run(
        lambda m: torch.autograd.grad(
            (outs[m.rank] * randn(*outs[m.rank].shape, seed=70 + m.rank)).sum(),
            [xs[m.rank], routes[m.rank].weights, *parts[m.rank].parameters()],
        )
    )
    expected = [whole(x, route, ranks=Ranks.one().ep) for x, route in zip(xs, routes, strict=True)]
    scalar = sum((out * randn(*out.shape, seed=70 + rank)).sum() for rank, out in enumerate(expected))
    slow = torch.autograd.grad(scalar, [*xs, *(route.weights for route in routes), *whole.parameters()])
    for rank, held in enumerate(part.held for part in parts):
        assert relative_error(outs[rank], expected[rank], floor=1e-3) < 1e-13
        own = [slow[rank], slow[4 + rank], *(stack[held.start : held.stop] for stack in slow[8:])]
        for grad, one in zip(grads[rank], own, strict=True):
            assert relative_error(grad, one, floor=1e-3) < 1e-13
    check_bytes([member.ranks.ep for member in world.members], routes)


def check_bytes(exchanges: Sequence[Exchange], routes: Sequence[Routing]) -> None:
    """Rows go there and back, and so do their gradients; beside them travel expert numbers, and how many there are."""
    away = sum(int((route.experts // 2 != rank).sum()) for rank, route in enumerate(routes))
    numbers = 4 * 3 + away
    assert sum(exchange.sent_bytes.total() for exchange in exchanges) == 4 * away * D * F64 + numbers * I64


@pytest.mark.parametrize(
    "mesh",
    [Mesh(cp=2, ep=2), Mesh(cp=4, ep=2), Mesh(cp=4, ep=4), Mesh(dp=2, ep=2), Mesh(dp=2, cp=2, ep=4)],
    ids=lambda m: f"cp{m.cp}-dp{m.dp}-ep{m.ep}",
)
def test_a_step_on_a_mesh_is_the_step_of_one_rank(mesh: Mesh) -> None:
    check_step(Step([[drawn_pack(10 * replica + number) for number in range(2)] for replica in range(mesh.dp)]), mesh)


def test_a_step_in_which_experts_idle() -> None:
    """The bias sends every token of the learned layers to experts 0 and 1: rank 1 of two computes hash layers only."""
    whole = stirred(CONFIG)
    with torch.no_grad():
        for name, buffer in whole.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer[:2] += 100.0
    step = Step([[masked_pack(PackLayout.from_lengths([9, 20, 3]), seed=4)]])
    check_step(step, Mesh(cp=2, ep=2), whole=whole)
    _, grads = on_mesh(whole, step, Mesh(cp=2, ep=2))
    assert not grads[1]["mtp.0.block.mlp.experts.down_proj"].any(), "zero, and there"
    assert grads[0]["mtp.0.block.mlp.experts.down_proj"][:2].any()


@pytest.mark.parametrize("fixed", [True, False])
def test_on_one_expert_rank_the_setting_of_fixed_shapes_decides(*, fixed: bool) -> None:
    """A group of one computes as without groups, to the bit."""
    whole = stirred(replace(CONFIG, fixed_shape_experts=fixed))
    pack = drawn_pack(3)
    outs = InProcessWorld(Mesh()).run(lambda member: part_of(whole, Share())(pack, ranks=member.ranks))
    assert torch.equal(outs[0].loss, whole(pack).loss)


def test_bounds_see_one_choice_gone_astray() -> None:
    """The comparison is sharp: one token's second expert off by one is far beyond the bound."""
    experts, x, route = experts_of(Share()), randn(9, D), routing(9, among=range(8), seed=1)
    moved = route.experts.clone()
    moved[4, 1] = (moved[4, 1] + 1) % E
    one, other = (experts(x, replace(route, experts=e), ranks=Ranks.one().ep) for e in (route.experts, moved))
    assert relative_error(one, other) > 1e6 * BOUND
