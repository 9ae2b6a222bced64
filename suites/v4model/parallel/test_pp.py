"""Pipeline: stages run a step of several micro-batches as one model does, whatever else the mesh is cut by."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from suites.v4model.parallel.ranks import CONFIG, PACKS, Step, check_step, drawn_pack, on_mesh, part_of, whole_model
from v4model import V4Output
from v4model.exchange import Pipe, RankError
from v4model.parallel.groups import Member, Mesh
from v4model.parallel.in_process import InProcessWorld
from v4model.parallel.pp import run_step

MESHES = [
    Mesh(pp=2),
    Mesh(pp=3),  # two layers, one, one
    Mesh(pp=4),
    Mesh(pp=4, cp=2),
    Mesh(pp=2, cp=2, ep=2),
    Mesh(dp=2, cp=2, ep=4, pp=2),
]


def step_of(*, replicas: int = 1, micro_batches: int = 2) -> Step:
    """Packs of different sizes."""
    return Step([[drawn_pack(20 * r + number) for number in range(micro_batches)] for r in range(replicas)])


@pytest.mark.parametrize("mesh", MESHES, ids=lambda m: f"cp{m.cp}-dp{m.dp}-pp{m.pp}-ep{m.ep}")
def test_a_step_on_stages_is_the_step_of_one_model(mesh: Mesh) -> None:
    check_step(step_of(replicas=mesh.dp), mesh)


@pytest.mark.parametrize("name", ["no window", "padding only", "slots"])
def test_packs_that_leave_stages_little_to_do(name: str) -> None:
    check_step(Step([[PACKS[name], PACKS["ragged"]]]), Mesh(pp=4, cp=2))


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_any_number_of_micro_batches(micro_batches: int) -> None:
    check_step(step_of(micro_batches=micro_batches), Mesh(pp=2))


def test_only_the_last_stage_has_heads() -> None:
    outs, _ = on_mesh(whole_model(), step_of(), Mesh(pp=4))
    assert [isinstance(out[0], V4Output) for out in outs] == [False, False, False, True]
    # Layer 0 is dense and hashed: nothing in it has a loss of its own.
    assert [out[0].loss.requires_grad for out in outs] == [False, True, True, True]
    assert [list(out[0].terms.balance_sums) for out in outs] == [[], [1], [2], [3, 4, 5]]
    assert [len(out[0].terms.nll_sums) for out in outs] == [0, 0, 0, 3]


def test_streams_between_stages_are_those_between_layers() -> None:
    whole, step, seen = whole_model(), step_of(micro_batches=1), {}
    handles = [
        block.register_forward_hook(lambda _module, _args, out, layer=layer: seen.update({layer: out.streams}))
        for layer, block in whole.trunk.layers.items()
    ]
    whole(step.packs[0][0])
    for handle in handles:
        handle.remove()
    outs, _ = on_mesh(whole, step, Mesh(pp=2))
    assert torch.equal(outs[0][0].streams, seen["1"])


class Recorder:
    """A pipe that notes what passes through it, in order."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe, self.log = pipe, []

    def send(self, x: Tensor, *, to_stage: int) -> None:
        self.log.append(("send", to_stage, tuple(x.shape)))
        self.pipe.send(x, to_stage=to_stage)

    def receive(self, like: Tensor, *, from_stage: int) -> Tensor:
        self.log.append(("receive", from_stage, tuple(like.shape)))
        return self.pipe.receive(like, from_stage=from_stage)


def test_all_forward_passes_come_first_and_streams_alone_travel() -> None:
    step, mesh = step_of(), Mesh(pp=3, cp=2)
    models = [part_of(whole_model(), mesh.share(rank)) for rank in range(mesh.world)]

    def work(member: Member) -> list[tuple[str, int, tuple[int, ...]]]:
        pipe = Recorder(member.pipe)
        run_step(models[member.rank], step.packs[0], ranks=member.ranks, pipe=pipe, counts=step.counts)
        return pipe.log

    logs = InProcessWorld(mesh).run(work)
    one, two = ((-(-pack.layout.total // 2), CONFIG.hc_mult, CONFIG.hidden_size) for pack in step.packs[0])
    assert one != two
    first = [("send", 1, one), ("send", 1, two), ("receive", 1, two), ("receive", 1, one)]
    middle = [
        ("receive", 0, one), ("send", 2, one), ("receive", 0, two), ("send", 2, two),
        ("receive", 2, two), ("send", 0, two), ("receive", 2, one), ("send", 0, one),
    ]  # fmt: skip
    last = [("receive", 1, one), ("receive", 1, two), ("send", 1, two), ("send", 1, one)]
    assert logs == [first, first, middle, middle, last, last]


def test_stages_that_disagree_about_a_pack_are_told() -> None:
    packs, mesh = [drawn_pack(0), drawn_pack(1)], Mesh(pp=2)
    models = [part_of(whole_model(), mesh.share(rank)) for rank in range(2)]
    counts = step_of().counts

    def work(member: Member) -> None:
        run_step(models[member.rank], [packs[member.rank]], ranks=member.ranks, pipe=member.pipe, counts=counts)

    sizes = [f"[{pack.layout.total}, {CONFIG.hc_mult}, {CONFIG.hidden_size}]" for pack in packs]
    with pytest.raises(RankError) as caught:
        InProcessWorld(mesh).run(work)
    assert str(caught.value) == f"stage 0 sends {sizes[0]} where rank 1 expects {sizes[1]}"


def test_a_stage_with_a_micro_batch_too_many_waits_by_name() -> None:
    step, mesh = step_of(), Mesh(pp=2)
    models = [part_of(whole_model(), mesh.share(rank)) for rank in range(2)]

    def work(member: Member) -> None:
        packs = step.packs[0][: 2 if member.rank else 1]
        run_step(models[member.rank], packs, ranks=member.ranks, pipe=member.pipe, counts=step.counts)

    with pytest.raises(RankError, match="rank 0 waits in a message from stage 1, where rank 1 waits in a message"):
        InProcessWorld(mesh).run(work)


def test_gradients_add_to_those_there_are() -> None:
    """Several steps before an optimizer's: .grad is added to, as autograd does."""
    step, mesh = step_of(micro_batches=1), Mesh(pp=2)
    models = [part_of(whole_model(), mesh.share(rank)) for rank in range(2)]
    world = InProcessWorld(mesh)

    def work(member: Member) -> list[Tensor]:
        model = models[member.rank]
        run_step(model, step.packs[0], ranks=member.ranks, pipe=member.pipe, counts=step.counts)
        return [parameter.grad.clone() for parameter in model.parameters()]

    once, twice = world.run(work), world.run(work)
    for of_rank, of_both in zip(once, twice, strict=True):
        assert all(torch.equal(2 * one, both) for one, both in zip(of_rank, of_both, strict=True))
