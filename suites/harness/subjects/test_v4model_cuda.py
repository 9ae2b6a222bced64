"""The subject of the fast operations: the same class on the CPU, where it is plain, and on a CUDA device if any.

What is planted here is caught by computed bounds; the last of it would pass the fixed one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from harness import cli
from harness.case import Case
from harness.catalogue import find_fault, find_property, properties
from harness.engine import decide
from harness.engine.decide import Planted
from harness.faults.patching import giving, model_of, parts
from harness.faults.registry import Fault
from harness.kinds import KINDS
from harness.subjects.protocol import Measurable, Subject
from harness.subjects.record import choices_in
from harness.subjects.resolve import known_subjects
from harness.subjects.v4model_choices import choosing
from harness.subjects.v4model_cuda import BFLOAT16, FLOAT32, OnDevice
from harness.subjects.v4model_one_rank import V4OneRank, lively_model
from harness.tolerance import REORDERED_F32
from harness.verdict import Outcome, Verdict
from suites.harness import fakes
from v4model import V4Config
from v4model.layers.attention import Attention
from v4model.layers.attention.base import Attended
from v4model.layers.router import LearnedRouter, Routing
from v4model.ops import twins

HERE = {factory.name: replace(factory, device="cpu") for factory in (FLOAT32, BFLOAT16)}
DTYPE = {FLOAT32.name: "float32", BFLOAT16.name: "bfloat16"}
TOKEN = "all/9p2.18.1+34/s5"
MODEL = [prop.name for prop in properties() if prop.looks_at == "model" and not prop.ranked]
DERIVATIVES = "gradients_are_derivatives"
on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="fast operations run on a CUDA device alone")


def verdict_of(name: str, factory: OnDevice, token: str, *, fault: Planted | None = None) -> Verdict:
    """Of a property on the case of a token, in the dtype that the subject is asked in."""
    case = Case.from_token(f"{token}/{DTYPE[factory.name]}")
    return decide(find_property(name), factory, case, fakes.corpus(), fault=fault)


@pytest.mark.parametrize("name", [name for name in MODEL if name != DERIVATIVES])
@pytest.mark.parametrize("subject", HERE)
def test_every_property_holds(name: str, subject: str) -> None:
    verdict = verdict_of(name, HERE[subject], TOKEN)
    assert verdict.outcome is Outcome.HOLDS, verdict.witness.sentence() if verdict.witness else verdict.reason
    print(f"{name} on {TOKEN}: error {verdict.error:.1e}, bound {verdict.bound:.1e}")


@pytest.mark.parametrize("subject", HERE)
def test_bounds_are_computed_and_leave_room(subject: str) -> None:
    verdict = verdict_of("packed_equals_alone", HERE[subject], TOKEN)
    assert verdict.error is not None
    assert verdict.bound is not None
    # Some roundings, and no more than a layer or two of them add up to.
    unit = {"float32": 2.0**-24, "bfloat16": 2.0**-9}[DTYPE[subject]]
    assert 4 * unit <= verdict.bound < 400 * unit
    assert verdict.error < verdict.bound


def test_what_is_decided_in_float64_alone_is_left_open() -> None:
    verdict = verdict_of(DERIVATIVES, HERE[FLOAT32.name], TOKEN)
    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.reason == f"{DERIVATIVES} is decided in float64, not in float32"


def test_properties_of_data_are_asked_in_what_it_has() -> None:
    for prop in properties():
        if prop.looks_at == "data":
            assert verdict_of(prop.name, HERE[FLOAT32.name], "all/9.18/s5").outcome is Outcome.HOLDS


@pytest.mark.parametrize(
    ("fault", "name"),
    [(fault, "query_sees_only_its_sample") for fault in ("A1", "B1", "C3")] + [("B1", "packed_equals_alone")],
)
@pytest.mark.parametrize("subject", HERE)
def test_faults_are_caught(fault: str, name: str, subject: str) -> None:
    planted = find_fault(fault)
    verdict = verdict_of(name, HERE[subject], "all/9p2.18.21+52/s5", fault=planted)
    assert verdict.outcome is Outcome.VIOLATED, verdict
    assert verdict.witness is not None
    assert verdict.witness.at is not None or verdict.witness.query is not None


_SUBTLE = 1e-4


@contextmanager
def _scaled(subject: Subject, *, behind: int) -> Iterator[None]:
    """The trunk's first attention gives rows from token `behind` of a pack on too large by one part in ten thousand."""

    def scaled(_kwargs: Mapping[str, Any], output: Attended) -> Attended:
        size = torch.ones(len(output.out), 1, device=output.out.device)
        size[behind:] += _SUBTLE
        return replace(output, out=(output.out * size).to(output.out.dtype))

    with giving(parts(subject, Attention)[:1], scaled):
        yield


def subtle(*, behind: int) -> Fault:
    """As a fault: a kernel whose later blocks are not as exact as its first, or none is."""
    return Fault(
        name="subtle",
        title="an operation is off by one part in ten thousand",
        reference="none",
        expected="packed_equals_alone",
        kinds=KINDS,
        apply=lambda subject: _scaled(subject, behind=behind),
    )


class _Fixed:
    """The same model as a subject whose rounding is not measured, with the fixed bound of float32."""

    unsupported: Mapping[str, str] = {"float64": "as the other"}

    def __call__(self, config: V4Config, dtype: torch.dtype, seed: int) -> Subject:
        """A subject."""
        return _Declaring(lively_model(config, dtype, seed), seed)


class _Declaring(V4OneRank):
    unsupported = _Fixed.unsupported


def test_a_subtle_defect_is_caught_by_the_computed_bound_alone() -> None:
    token = "all/9.18/s5"
    verdict = verdict_of("packed_equals_alone", HERE[FLOAT32.name], token, fault=subtle(behind=9))
    assert verdict.outcome is Outcome.VIOLATED
    assert verdict.bound is not None
    assert verdict.error is not None
    assert verdict.bound < verdict.error < REORDERED_F32
    case = Case.from_token(f"{token}/float32")
    by_fixed = decide(find_property("packed_equals_alone"), _Fixed(), case, fakes.corpus(), fault=subtle(behind=9))
    assert (by_fixed.outcome, by_fixed.bound) == (Outcome.HOLDS, REORDERED_F32)


def test_a_subtle_defect_that_is_everywhere_is_caught_by_the_plain_reading() -> None:
    token, planted = "all/9.18/s5", subtle(behind=0)
    assert verdict_of("packed_equals_alone", HERE[FLOAT32.name], token, fault=planted).outcome is Outcome.HOLDS
    assert verdict_of("matches_plain_reading", HERE[FLOAT32.name], token, fault=planted).outcome is Outcome.VIOLATED


@contextmanager
def _routed(subject: Subject, *, by: float) -> Iterator[None]:
    """In packs of several samples experts are chosen by affinities with noise, relative to themselves."""
    # A router is told no context; the trunk is, before.
    several: list[bool] = []

    def noted(_trunk: object, _args: object, kwargs: Mapping[str, Any]) -> None:
        several[:] = [kwargs["context"].layout.num_samples > 1]

    def noisy(router: LearnedRouter, _args: object, routing: Routing) -> Routing:
        noise = torch.randn(routing.affinity.shape, generator=torch.Generator().manual_seed(1))
        values = routing.affinity.detach() * (1 + by * several[0] * noise) + router.e_score_correction_bias
        return router.weigh(routing.affinity, values.topk(routing.experts.shape[1]).indices)

    handles = [model_of(subject).trunk.register_forward_pre_hook(noted, with_kwargs=True)]
    handles += [router.register_forward_hook(noisy) for router in parts(subject, LearnedRouter)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@pytest.mark.parametrize("subject", HERE)
def test_experts_that_rounding_does_not_account_for_are_a_violation(subject: str) -> None:
    planted = replace(subtle(behind=0), apply=lambda subject: _routed(subject, by=0.3))
    verdict = verdict_of("packed_equals_alone", HERE[subject], "all/9.18/s5", fault=planted)
    assert verdict.outcome is Outcome.VIOLATED
    assert verdict.witness is not None
    assert "choose apart" in verdict.witness.what


def test_told_its_own_choices_it_computes_the_same_and_a_cost_of_0() -> None:
    case = Case.from_token("all/9p2.18.21+52/s5/float32")
    subject = HERE[FLOAT32.name](case.v4config(), torch.float32, case.seed)
    pack = case.pack(fakes.corpus())
    free, record = subject.observe(pack), subject.layer_outputs(pack)
    with choosing(subject.model, choices_in(record), pack.layout.real) as made:
        told = subject.observe(pack)
    for one, other in zip(free.depths, told.depths, strict=True):
        assert torch.allclose(one.values, other.values, rtol=0, atol=1e-5)
    assert {name.rpartition(".")[2] for name in made} == {"indexer", "gate"}
    for name, choice in made.items():
        left = choice.values.masked_fill(choice.taken, -torch.inf).amax(1)
        assert not choice.absent.any(), name
        assert (left <= choice.values.masked_fill(~choice.taken, torch.inf).amin(1))[choice.told].all(), name


def test_what_is_told_and_not_there_is_told_back() -> None:
    case = Case.from_token("csa/9.33/s5/float32")
    subject = HERE[FLOAT32.name](case.v4config(), torch.float32, case.seed)
    pack = case.pack(fakes.corpus())
    choices = choices_in(subject.layer_outputs(pack))
    name = "layers.0.self_attn.indexer"
    picks = choices[f"{name}.picks"].clone()
    picks[9 + 32, 0] = 0  # the second sample's last token is told to read a window of the first
    with choosing(subject.model, {**choices, f"{name}.picks": picks}, pack.layout.real) as made:
        subject.observe(pack)
    assert made[name].absent.nonzero().flatten().tolist() == [9 + 32]
    assert not any(choice.absent.any() for other, choice in made.items() if other != name)


def test_what_is_planted_leaves_the_models_beside_it_healthy() -> None:
    case = Case.from_token("all/9.18/s5/float32")
    subject = HERE[FLOAT32.name](case.v4config(), torch.float32, case.seed)
    assert isinstance(subject, Measurable)
    pack = case.pack(fakes.corpus())
    healthy = subject.plain().observe(pack).depths[0].values.detach().clone()
    with find_fault("B1").apply(subject):
        assert torch.equal(subject.plain().observe(pack).depths[0].values, healthy)
        assert not torch.equal(subject.observe(pack).depths[0].values, healthy)
    exact = subject.exact().observe(pack).depths[0].values.detach()
    assert exact.dtype == torch.float64
    assert 0 < float((exact - healthy).abs().max()) < 1e-4


def test_both_are_known_by_name() -> None:
    assert {FLOAT32.name, BFLOAT16.name} <= known_subjects().keys()


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a CUDA device there is nothing to refuse")
@pytest.mark.parametrize("name", HERE)
def test_without_a_device_one_sentence_says_so(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["run"], ["replay", "all/5/s1"], ["check-subject"]):
        option = [] if command == ["check-subject"] else ["--subject"]
        assert cli.run_cli([*command, *option, name]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"got no CUDA device; expected a machine with one; where: subject {name}" in line


@on_cuda
@pytest.mark.parametrize("name", ["query_sees_only_its_sample", "packed_equals_alone", "matches_plain_reading"])
@pytest.mark.parametrize("factory", [FLOAT32, BFLOAT16], ids=lambda factory: factory.name)
def test_fast_operations_hold(name: str, factory: OnDevice) -> None:
    verdict = verdict_of(name, factory, TOKEN)
    assert verdict.outcome is Outcome.HOLDS, verdict.witness.sentence() if verdict.witness else verdict.reason


@on_cuda
def test_the_subject_runs_fast_and_the_models_beside_it_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case.from_token(f"{TOKEN}/float32")
    subject = FLOAT32(case.v4config(), torch.float32, case.seed)
    pack, asked = case.pack(fakes.corpus()), list[str]()
    find = twins._twin

    def counted(module: str, name: str) -> Any:
        asked.append(name)
        return find(module, name)

    monkeypatch.setattr(twins, "_twin", counted)
    seen: Tensor = subject.observe(pack).depths[0].values
    assert seen.device.type == "cpu"
    assert {"attend", "rms_norm", "choose_rows", "sinkhorn", "linear_cross_entropy"} <= set(asked)
    asked.clear()
    for beside in (subject.plain(), subject.exact()):
        beside.observe(pack)
    assert not asked
