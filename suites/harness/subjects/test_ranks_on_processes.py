"""Ranks as processes: what is asked of them, over which backend, and that a difference is seen there too."""

from __future__ import annotations

import pytest
import torch

from harness.case import Case
from harness.catalogue import find_property, find_subject
from harness.corpus import load_corpus
from harness.engine import Plan, decide, find_profile
from harness.subjects.protocol import Subject
from harness.subjects.rank_pool import DEVICES, pool_of
from harness.subjects.v4model_one_rank import build, lively_model
from harness.verdict import Outcome, Verdict
from suites.harness import fakes
from v4model import V4Config, V4Model

NAMES = ("cp_matches_one_rank", "no_rank_waits", "ep_matches_one_rank", "pp_matches_one_rank")


def verdict(name: str, factory: object, token: str = "all@2p/9.40.3+60/s5") -> Verdict:
    return decide(find_property(name), factory, Case.from_token(token), fakes.corpus(), fault=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_it_holds_on_processes(name: str) -> None:
    found = verdict(name, find_subject("v4model"))
    assert found.outcome is Outcome.HOLDS, found
    print(f"{name}: {found.error} of {found.bound}")


@pytest.mark.parametrize("name", ["cp_matches_one_rank", "ep_matches_one_rank", "pp_matches_one_rank"])
def test_processes_that_compute_something_else_are_seen(name: str) -> None:
    """Ranks build the model from its key; here the one in this process is another by a millionth of one weight."""

    def changed(config: V4Config, dtype: torch.dtype, seed: int) -> Subject:
        subject = build(config, dtype, seed)
        other = V4Model(config, dtype=dtype)
        other.load_state_dict(subject.model.state_dict())
        with torch.no_grad():
            other.get_parameter("trunk.layers.1.mlp.shared_experts.down_proj.weight")[0, 0] += 1e-6
        return type(subject)(other, seed)

    found = verdict(name, changed)
    assert found.outcome is Outcome.VIOLATED, found


def test_over_nccl_without_gpus_is_undecided_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    for name in NAMES:
        found = verdict(name, find_subject("v4model-nccl"))
        assert found.outcome is Outcome.UNDECIDED
        assert "got 1 GPUs for 2 ranks over nccl" in found.reason
    # In this process it needs none.
    assert verdict("cp_matches_one_rank", find_subject("v4model-nccl"), "all@2/9.40/s5").outcome is Outcome.HOLDS


def test_every_property_of_processes_is_asked_of_few_layouts() -> None:
    profile = find_profile("quick")
    plan = Plan(properties=NAMES, subject="v4model", profile=profile, corpus=load_corpus(None), cp=(1, 2))
    on_processes = {
        (row.property_name, row.ranks): unit.layouts for unit in plan.units() for row in unit.rows if row.processes
    }
    assert on_processes == {(name, 2): profile.processes_per_kind for name in NAMES}
    # Properties of meshes have layouts of their own: those of equality are many more.
    of_meshes = {unit.layouts for unit in plan.units() for row in unit.rows if row.property_name.startswith("ep_")}
    assert of_meshes == {profile.processes_per_kind, profile.meshes_per_kind}


def test_a_process_has_one_pool_of_each_size_and_backend() -> None:
    assert pool_of(2) is pool_of(2, backend="gloo")
    assert DEVICES == {"gloo": "cpu", "nccl": "cuda"}


def test_a_model_is_built_where_it_is_asked_for() -> None:
    config = Case.from_token("dense/5/s1").v4config()
    assert lively_model(config, torch.float64, 1, "cpu").device.type == "cpu"
    with pytest.raises((AssertionError, RuntimeError), match=r"CUDA|NVIDIA"):
        lively_model(config, torch.float64, 1, "cuda" if not torch.cuda.is_available() else "cuda:99")
