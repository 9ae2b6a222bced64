"""The whole program on gloo processes, and defects that it has to see: nothing but NCCL itself is left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from harness.subjects.gpus import __main__ as program
from harness.subjects.gpus.compare import Asked, Comparison, compare_here
from harness.subjects.rank_pool import RankFailure, RankPool
from v4model.parallel import processes
from v4model.parallel.groups import Mesh
from v4model.train import torch_engine
from v4model.train.optimizer import WideAdamW

ASKED = Asked(model="tiny", dtype="float32", gpus=2, tokens=64, device="cpu")


@pytest.fixture(scope="module")
def pool() -> Iterator[RankPool]:
    pool = RankPool(2)
    yield pool
    pool.close()


def test_two_ranks_are_compared_and_the_report_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "gpus.json"
    words = "--backend gloo --gpus 2 --model tiny --tokens 64 --dtype float32 --output".split()
    assert program.main([*words, str(output)]) == 0
    report = json.loads(output.read_text(encoding="utf-8"))
    meshes = ["dp=1 pp=1 cp=2 ep=1", "dp=2 pp=1 cp=1 ep=2", "dp=1 pp=1 cp=2 ep=2", "dp=1 pp=2 cp=1 ep=1"]
    assert [row["mesh"] for row in report["rows"]] == meshes
    assert all(row["holds"] and row["gradient_one"] > 0 for row in report["rows"])
    assert report["unfinished"] == []
    assert (report["backend"], report["device"]) == ("gloo", "cpu")
    # Context ranks exchange over context groups only, experts of replicas over expert groups only.
    sent = [(row["sent_cp_bytes"] > 0, row["sent_ep_bytes"] > 0) for row in report["rows"]]
    assert sent == [(True, False), (False, True), (True, True), (False, False)]
    assert capsys.readouterr().out.count("holds float32") == 4


def test_without_gpus_enough_nothing_is_said_to_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with mock.patch.object(torch.cuda, "device_count", return_value=1):
        assert program.main(["--gpus", "2", "--output", str(tmp_path / "gpus.json")]) == 3
    assert capsys.readouterr().out == "got 1 GPUs; expected 2; where: this machine\n"
    assert not (tmp_path / "gpus.json").exists()


def test_a_mesh_that_fails_does_not_take_the_others_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def call(self: RankPool, _: object, per_rank: list[tuple[Asked, Mesh]]) -> list[Comparison]:
        mesh = per_rank[0][1]
        calls.append(mesh)
        if mesh.ep > 1:
            self.close()
            raise RankFailure("rank 1: OutOfMemoryError: full")
        return [healthy]

    healthy = Comparison(
        mesh="a", dtype="float32", tokens=1, samples=1, nll_one=1, nll_several=1, gradient_one=1, gradient_several=1,
        loss_difference=0, weight_error=0, norm_error=0, disagreeing=(), sent_cp_bytes=0, sent_ep_bytes=0,
        step_seconds=0,
    )  # fmt: skip
    monkeypatch.setattr(RankPool, "call", call)
    output = tmp_path / "gpus.json"
    words = "--backend gloo --gpus 2 --model tiny --dtype float32 --output".split()
    assert program.main([*words, str(output)]) == 1
    report = json.loads(output.read_text(encoding="utf-8"))
    assert len(calls) == 4
    assert len(report["rows"]) == 2
    assert [each["mesh"] for each in report["unfinished"]] == ["dp=2 pp=1 cp=1 ep=2", "dp=1 pp=1 cp=2 ep=2"]
    assert "FAILS float32  dp=2 pp=1 cp=1 ep=2: rank 1: OutOfMemoryError: full" in capsys.readouterr().out


# -- defects, planted on the ranks themselves -------------------------------------------------------------------------


def _with_defect(name: str, mesh: Mesh) -> Comparison | None:
    """On a rank: the comparison with one thing wrong while ranks compute together; references stay healthy."""
    healthy_step, healthy_sum, rank = WideAdamW.step, processes.sum_gradients, dist.get_rank()

    def skip(self: WideAdamW, step: int, *, scale: float) -> None:
        if rank == 0 or self.settings.mesh.world == 1:
            healthy_step(self, step, scale=scale)

    def of_itself(_: Mesh, own: int) -> tuple[int, ...]:
        return (own,)

    def never(x: torch.Tensor, *, mesh: Mesh) -> None:
        """Router counts of the own rank only."""

    def without_experts(model: torch.nn.Module, *, mesh: Mesh) -> None:
        healthy_sum(model, mesh=mesh)
        for parameter_name, parameter in model.named_parameters():
            if rank == 1 and parameter_name.endswith("experts.down_proj") and parameter.grad is not None:
                parameter.grad *= 0.5

    patches = {
        "nothing": [],
        "update skipped": [mock.patch.object(WideAdamW, "step", skip)],
        "gradients of the own rank": [mock.patch.object(Mesh, "stage_group", of_itself)],
        "half of an expert's gradient": [mock.patch.object(torch_engine, "sum_gradients", without_experts)],
        "biases by own counts": [mock.patch.object(torch_engine, "total_over_stage", never)],
    }
    processes._group.cache_clear()  # groups that a patched mesh has made are not those of a healthy one
    with ExitStack() as stack:
        for patch in patches[name]:
            stack.enter_context(patch)
        return compare_here(ASKED, mesh)


@pytest.mark.parametrize(
    ("name", "mesh", "seen"),
    [
        ("nothing", Mesh(dp=2, ep=2), None),
        ("update skipped", Mesh(dp=2), "after of"),
        ("update skipped", Mesh(dp=2, ep=2), "weight"),
        ("update skipped", Mesh(pp=2), "weight"),
        ("gradients of the own rank", Mesh(cp=2), "gradient"),
        ("half of an expert's gradient", Mesh(dp=2, ep=2), "gradient"),
        ("biases by own counts", Mesh(dp=2), "bias of"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_defect_of_ranks_is_seen_where_it_shows(pool: RankPool, name: str, mesh: Mesh, seen: str | None) -> None:
    row, _ = pool.call(_with_defect, [(name, mesh)] * 2)
    assert row.holds == (seen is None), row.sentence()
    found = {
        None: row.holds,
        "weight": not row.weight_error <= 1.0,
        "gradient": not row.gradient_several <= 2 * row.gradient_one,
    }
    print(row.sentence())
    assert found[seen] if seen in found else any(what.startswith(seen) for what in row.disagreeing)
