"""The bytes that a formula says are those that the exchanges count, in every dtype, on every mesh."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from suites.v4model.parallel.ranks import CONFIG, PACKS
from v4model import Pack, V4Config, V4Model, presets
from v4model.pack.counts import counts_of
from v4model.parallel.groups import Member, Mesh
from v4model.parallel.in_process import InProcessWorld
from v4model.parallel.pp import run_step
from v4model.parallel.volume import context_bytes, expert_bytes_if_even

STEP = [PACKS["slots"], PACKS["no window"]]
KINDS = replace(presets.three_kinds(), sliding_window=16)


def sent_bytes(config: V4Config, packs: list[Pack], mesh: Mesh, *, dtype: torch.dtype, recompute: bool) -> list[int]:
    """Over context and over expert groups, as the exchanges of all ranks count them."""
    counts, world = counts_of(packs, depths=config.num_nextn_predict_layers), InProcessWorld(mesh)

    def work(member: Member) -> None:
        model = V4Model(config, dtype=dtype, share=mesh.share(member.rank), recompute=recompute)
        own = packs[mesh.replica(member.rank) :: mesh.dp]
        run_step(model, own, ranks=member.ranks, pipe=member.pipe, counts=counts)

    world.run(work)
    return [sum(getattr(member.ranks, group).sent_bytes.total() for member in world.members) for group in ("cp", "ep")]


@pytest.mark.parametrize(
    ("config", "mesh", "dtype", "recompute"),
    [
        (CONFIG, Mesh(cp=2), torch.float64, False),
        (CONFIG, Mesh(cp=2), torch.bfloat16, True),
        (CONFIG, Mesh(cp=8), torch.float32, False),
        (CONFIG, Mesh(cp=2, ep=2, pp=2), torch.bfloat16, False),
        (CONFIG, Mesh(cp=2, ep=2, dp=2), torch.float32, True),
        (CONFIG, Mesh(cp=2, pp=3), torch.float32, True),
        (KINDS, Mesh(cp=4), torch.bfloat16, True),
    ],
    ids="cp2 cp2-again cp8 pp2 dp2 pp3 three-kinds".split(),
)
def test_context_groups_send_what_the_formula_says(
    config: V4Config, mesh: Mesh, dtype: torch.dtype, *, recompute: bool
) -> None:
    counted, _ = sent_bytes(config, STEP, mesh, dtype=dtype, recompute=recompute)
    layouts = [pack.layout for pack in STEP]
    said = context_bytes(config, layouts, ranks=mesh.cp, stages=mesh.pp, dtype=dtype, recompute=recompute)
    assert counted == said > 0


@pytest.mark.parametrize("recompute", [False, True])
def test_expert_groups_send_about_what_an_even_router_would(*, recompute: bool) -> None:
    """With as many choices as experts every choice is known: all go everywhere, which is even."""
    config, mesh = replace(CONFIG, num_experts_per_tok=CONFIG.n_routed_experts), Mesh(cp=4, ep=4)
    _, counted = sent_bytes(config, [PACKS["slots"]], mesh, dtype=torch.float32, recompute=recompute)
    tokens, blocks = 48, 6
    said = expert_bytes_if_even(config, tokens=tokens, ranks=4, dtype=torch.float32, recompute=recompute)
    told = (2 if recompute else 1) * blocks * 4 * 3 * 8
    assert counted == said + told
