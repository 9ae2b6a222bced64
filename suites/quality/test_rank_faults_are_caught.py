"""Every fault of ranks violates the property it names, and the witness says where: rank, row and cut.

The same cases are clean without the fault; the one-rank reference stays healthy while it is planted, and the subject
gives its healthy bits again once it is gone.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache

import pytest
import torch

from harness.case import Case
from harness.catalogue import find_property
from harness.engine import decide
from harness.engine.decide import on_ranks
from harness.faults.e4_look_back_of_6_rows import look_back
from harness.faults.registry import Fault, load_faults
from harness.properties.meshes import EP, PP
from harness.strategies import PackSize
from harness.strategies.cuts import ranked_cases
from harness.subjects.protocol import Subject
from harness.subjects.v4model_meshes import Mesh, StepRun, step_on_mesh, step_on_one_rank
from harness.tolerance import REORDERED_F64, relative_error
from harness.verdict import Outcome
from suites.quality.drawn import FACTORY, corpus, drawn, on_healthy, values_of
from v4model.exchange import Exchange, RankError

FAULTS = [fault for fault in load_faults() if fault.ranks]

# Compressed layers have whatever ranks exchange: local windows, overlapping ones, gathered rows, picks. On four ranks
# there are more cuts, and shares that differ; on two they often come out equal.
_KIND = "csa"
_OF_MESHES = (EP, PP)
_CASES = 8
_SMALL = PackSize(min_samples=1, max_samples=3, min_tokens=20, max_tokens=48)


def _kind(fault: Fault) -> str:
    return _KIND if _KIND in fault.kinds else fault.kinds[0]


@cache
def _drawn(kind: str, ranks: int) -> tuple[Case, ...]:
    return drawn(ranked_cases(kind, ranks=ranks, size=_SMALL), count=_CASES)


def _subject(case: Case) -> Subject:
    return on_ranks(FACTORY(case.v4config(), case.torch_dtype(), case.seed), case)


def _values(subject: Subject, case: Case) -> torch.Tensor:
    return values_of(subject, case.pack(corpus()))


@cache
def _healthy_values(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """On the case's ranks, and on one."""
    subject = _subject(case)
    return _values(subject, case), _values(subject.one, case)  # type: ignore[attr-defined]


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in FAULTS])
def test_its_property_catches_the_fault(fault: Fault) -> None:
    began, ranks = time.perf_counter(), fault.ranks[-1]
    tried = 0
    for case in _drawn(_kind(fault), ranks):
        tried += 1
        verdict = decide(find_property(fault.expected), FACTORY, case, corpus(), fault=fault)
        healthy = on_healthy(fault.expected, case)
        assert healthy.outcome is Outcome.HOLDS, healthy.reason
        assert verdict.outcome is not Outcome.UNDECIDED, verdict.reason
        if verdict.outcome is Outcome.VIOLATED:
            break
    assert verdict.witness is not None, f"{fault.name} passes {fault.expected} on {tried} cases"
    sentence = verdict.witness.sentence()
    assert sentence.startswith(f"{fault.expected}: ")
    assert ("one rank (dp=" if fault.expected in _OF_MESHES else "cut at token ") in sentence
    assert "rank" in sentence
    print(f"{fault.name} in case {tried} ({time.perf_counter() - began:.2f} s), {case.token()}\n  {sentence}")


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in FAULTS])
def test_it_leaves_one_rank_alone_and_goes_without_a_trace(fault: Fault) -> None:
    case = Case.from_token(f"{_kind(fault)}@2/9.7p2.8/s1")
    subject, (on_all, on_one) = _subject(case), _healthy_values(case)
    verbs = dict(vars(Exchange))

    def fail() -> None:
        with fault.apply(subject):
            assert torch.equal(_values(subject.one, case), on_one)  # type: ignore[attr-defined]
            # Ranks that disagree raise themselves.
            _values(subject, case)
            raise ZeroDivisionError

    with pytest.raises((ZeroDivisionError, RankError)):
        fail()
    assert torch.equal(_values(subject, case), on_all)
    # Some change the backward pass alone, or ranks without rows.
    assert dict(vars(Exchange)) == verbs


def _tables(run: StepRun) -> list[torch.Tensor]:
    """Whatever a step gives."""
    return [run.loss, *(nll for of_pack in run.nll for nll in of_pack), *run.gradients.values()]


def _same(one: StepRun, other: StepRun) -> bool:
    return all(torch.equal(a, b) for a, b in zip(_tables(one), _tables(other), strict=True))


# A pipeline with experts on ranks: every mechanism of a mesh.
_MESH = Mesh(pp=2, dp=2, ep=2)


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, id=fault.name) for fault in FAULTS if fault.expected in _OF_MESHES]
)
def test_a_fault_of_meshes_leaves_one_rank_and_other_models_alone(fault: Fault) -> None:
    case = Case.from_token(f"{_kind(fault)}@4/9.7p2.8/s1")
    packs = [replace(case, seed=seed).pack(corpus()) for seed in (1, 2)]
    subject = _subject(case)
    model, other = (FACTORY(case.v4config(), case.torch_dtype(), seed).model for seed in (1, 2))  # type: ignore[attr-defined]
    assert model is subject.model  # type: ignore[attr-defined]
    healthy = step_on_one_rank(model, packs), step_on_mesh(model, packs, _MESH), step_on_mesh(other, packs, _MESH)

    def fail() -> None:
        with fault.apply(subject):
            assert _same(step_on_one_rank(model, packs), healthy[0])
            assert _same(step_on_mesh(other, packs, _MESH), healthy[2])
            # Ranks that disagree raise themselves.
            step_on_mesh(model, packs, _MESH)
            raise ZeroDivisionError

    with pytest.raises((ZeroDivisionError, RankError)):
        fail()
    assert _same(step_on_mesh(model, packs, _MESH), healthy[1])


@pytest.mark.parametrize("cut", [12, 13, 14, 15])
def test_a_look_back_of_6_rows_is_short_where_a_window_ends_on_a_cut_and_7_never(cut: int) -> None:
    case = Case.from_token(f"csa@2/{2 * cut}/s1")
    subject, (healthy, _) = _subject(case), _healthy_values(case)
    changed = []
    for rows in (8, 7, 6):
        with look_back(subject, rows=rows):
            # Not to the bit: products of another number of rows may round in another way, by machine.
            changed.append(relative_error(_values(subject, case), healthy, floor=0.0) > REORDERED_F64)
    # The first token behind the cut is then the last of its window.
    assert changed == [False, False, cut % 4 == 3]
