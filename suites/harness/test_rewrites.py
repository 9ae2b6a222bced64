"""Equivalent rewrites: found by name, run where they say, equal to the model, gone without a trace."""

from __future__ import annotations

import importlib
import pkgutil
from contextlib import ExitStack
from functools import cache

import pytest
import torch

import harness.rewrites
from harness.case import Case
from harness.engine.decide import on_ranks
from harness.errors import UsageError
from harness.faults.activity import outputs
from harness.faults.f6_comb_untransposed import FAULT as F6
from harness.kinds import KINDS
from harness.rewrites.registry import Ran, Rewrite, load_rewrites
from harness.subjects.protocol import Subject
from harness.subjects.v4model_one_rank import V4OneRank, build
from harness.tolerance import GRADIENT_FLOOR_SHARE, REORDERED_F64, largest_magnitude, relative_error
from suites.harness import fakes
from v4model import Pack
from v4model.exchange import Exchange

REWRITES = load_rewrites()
every_rewrite = pytest.mark.parametrize("rewrite", [pytest.param(rewrite, id=rewrite.name) for rewrite in REWRITES])

# Samples that start off every ratio, padding inside and at the tail, more rows than the indexer picks.
LAYOUT = "7p3.5.21+40/s3"
# Scores tie where all index heads are closed.
CONFIGS = {"picks_by_counting": ",index_n_heads=1"}


@cache
def _case(rewrite: Rewrite, kind: str) -> Case:
    ranks = f"@{rewrite.ranks[-1]}" if rewrite.ranks else ""
    return Case.from_token(f"{kind}{CONFIGS.get(rewrite.name, '')}{ranks}/{LAYOUT}")


def _subject_and_pack(case: Case) -> tuple[Subject, Pack]:
    return on_ranks(build(case.v4config(), case.torch_dtype(), case.seed), case), case.pack(fakes.corpus())


@cache
def _healthy(case: Case) -> dict[str, torch.Tensor]:
    return outputs(*_subject_and_pack(case))


def _largest_error(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> tuple[float, str]:
    assert set(got) == set(expected)
    gradients = [value for name, value in expected.items() if name.startswith("gradient")]
    floor = GRADIENT_FLOOR_SHARE * max(map(largest_magnitude, gradients))
    return max((relative_error(got[name], expected[name], floor=floor), name) for name in expected)


def test_there_are_enough_and_each_module_is_found() -> None:
    names = [module.name for module in pkgutil.iter_modules(harness.rewrites.__path__)]
    assert [rewrite.name for rewrite in REWRITES] == sorted(set(names) - {"registry"})
    assert len(REWRITES) >= 12
    assert any(rewrite.ranks for rewrite in REWRITES)


@every_rewrite
def test_a_rewrite_says_what_it_is(rewrite: Rewrite) -> None:
    module = importlib.import_module(f"harness.rewrites.{rewrite.name}")
    assert rewrite is module.REWRITE
    assert rewrite.title
    assert (module.__doc__ or "").strip().endswith(".")
    assert set(rewrite.kinds) <= set(KINDS)


@every_rewrite
def test_a_rewrite_runs_on_its_kinds_and_computes_the_same(rewrite: Rewrite) -> None:
    for kind in rewrite.kinds:
        case = _case(rewrite, kind)
        subject, pack = _subject_and_pack(case)
        with rewrite.apply(subject) as ran:
            assert ran.calls == 0
            got = outputs(subject, pack)
        assert ran.calls > 0
        error, name = _largest_error(got, _healthy(case))
        print(f"{rewrite.name} on {kind}: {ran.calls} calls, largest error {error:.1e} ({name}), bound {REORDERED_F64}")
        assert error <= REORDERED_F64, name


def test_what_is_not_equivalent_is_told_apart() -> None:
    case = Case.from_token(f"all/{LAYOUT}")
    subject, pack = _subject_and_pack(case)
    with F6.apply(subject):
        error, _ = _largest_error(outputs(subject, pack), _healthy(case))
    assert error > 1e-3


@every_rewrite
def test_a_subject_is_as_it_was_after_an_exception(rewrite: Rewrite) -> None:
    case = _case(rewrite, rewrite.kinds[0])
    subject, pack = _subject_and_pack(case)
    model: torch.nn.Module = subject.model  # type: ignore[attr-defined]
    attributes, verbs = list(vars(model)), dict(vars(Exchange))

    def fail() -> None:
        with rewrite.apply(subject):
            subject.observe(pack)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(vars(model)) == attributes
    assert dict(vars(Exchange)) == verbs
    after = outputs(subject, pack)
    assert all(torch.equal(after[name], value) for name, value in _healthy(case).items())


@every_rewrite
def test_another_model_stays_as_it_is_meanwhile(rewrite: Rewrite) -> None:
    case = _case(rewrite, rewrite.kinds[0])
    (subject, pack), other = _subject_and_pack(case), V4OneRank(build(case.v4config(), torch.float64, 4).model, 4)
    with rewrite.apply(subject) as ran, torch.no_grad():
        subject.observe(pack)
        calls = ran.calls
        other.observe(pack)
        assert ran.calls == calls


def test_all_rewrites_of_one_rank_can_be_planted_at_once() -> None:
    case = Case.from_token(f"all/{LAYOUT}")
    subject, pack = _subject_and_pack(case)
    with ExitStack() as stack:
        # Of two at one place the one planted last runs.
        for rewrite in REWRITES:
            stack.enter_context(rewrite.apply(subject))
        error, name = _largest_error(outputs(subject, pack), _healthy(case))
    assert error <= REORDERED_F64, name


def test_calls_are_counted() -> None:
    ran = Ran()
    counted = ran.counting(max)
    assert (counted(1, 2), counted(4, 3), ran.calls) == (2, 4, 2)


def test_a_subject_without_a_v4model_is_refused() -> None:
    subject = fakes.healthy(Case.from_token("all/3/s0").v4config(), torch.float64, 0)
    for rewrite in REWRITES:
        with pytest.raises(UsageError, match="expected a subject whose `model` is a V4Model"):
            rewrite.apply(subject).__enter__()
