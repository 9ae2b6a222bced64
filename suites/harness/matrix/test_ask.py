"""What is asked of a fault, a rewrite and the healthy model, and what each verdict takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest

from harness import catalogue
from harness.engine import PROFILES
from harness.engine.unit import Work
from harness.faults import activity
from harness.faults.registry import Fault
from harness.matrix import ask, places, result
from harness.matrix.places import TRAINED_TOKENS, Place, in_turn, trained_cases
from harness.properties import Property
from harness.rewrites.registry import Ran, Rewrite
from harness.strata import every_stratum_of
from harness.subjects.protocol import Subject
from suites.harness import fakes

CASES = 5
KINDS = fakes.LEAK.kinds


def work(subject: str = "healthy") -> Work:
    profile = replace(PROFILES["quick"], cases_per_kind=CASES)
    return Work(subject=fakes.named(subject), profile=profile, corpus=fakes.corpus(), seed=None, fault=None)


@pytest.fixture(autouse=True)
def _fake_properties(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    asked = (fakes.ALONE, fakes.VACUOUS)
    monkeypatch.setattr(places, "properties", lambda: asked)
    monkeypatch.setattr(activity, "every_property", lambda: asked)
    caches: list[Callable[[], None]] = [places._drawn.cache_clear, trained_cases.cache_clear, ask._healthy.cache_clear]
    for clear in caches:
        clear()
    yield
    for clear in caches:
        clear()


@contextmanager
def nothing(_: Subject) -> Iterator[None]:
    yield


@contextmanager
def _more(subject: Subject) -> Iterator[None]:
    """Changes what the model gives, in a way that no fake property minds."""
    assert isinstance(subject, fakes.RunningSum)
    subject._table.data += 1
    try:
        yield
    finally:
        subject._table.data -= 1


def planted(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> str:
    monkeypatch.setattr(catalogue, "load_faults", lambda: (fault,))
    return fault.name


def test_a_fault_is_caught_on_a_case_that_holds_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    row = ask.fault_row(work(), planted(monkeypatch, fakes.LEAK))
    assert row.verdict == result.CAUGHT
    cell = row.cells["fake_alone"]
    # The first of each kind is one sample alone, vacuous here; the property is asked no more after it is violated.
    assert (cell.asked, cell.violated, row.cells["fake_vacuous"].asked) == (1, 1, 0)
    assert cell.token is not None
    assert cell.token.startswith(KINDS)
    assert row.parity is not None
    assert row.parity.sees


def test_a_fault_that_changes_nothing_is_vacuous(monkeypatch: pytest.MonkeyPatch) -> None:
    row = ask.fault_row(work(), planted(monkeypatch, replace(fakes.LEAK, apply=nothing)))
    assert row.verdict == result.INACTIVE
    # Asked on every case of both kinds and both sizes; the first of each is vacuous.
    assert row.cells["fake_alone"].asked == 2 * 2 * (CASES - 1)
    assert row.parity is not None
    assert (row.parity.loss, row.parity.sees) == (0.0, False)


def test_a_fault_that_changes_something_and_is_not_caught_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask.fault_row(work(), planted(monkeypatch, replace(fakes.LEAK, apply=_more))).verdict == result.MISSED


def test_a_violation_that_is_there_without_the_fault_is_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = replace(fakes.LEAK, apply=nothing)
    assert ask.fault_row(work("leaking"), planted(monkeypatch, fault)).verdict == result.ALARM


def test_a_property_that_need_not_catch_it_is_asked_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = replace(fakes.LEAK, apply=nothing, expected="fake_vacuous")
    assert ask.fault_row(work(), planted(monkeypatch, fault)).cells["fake_alone"].asked == ask.ENOUGH


def test_it_is_looked_for_where_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []

    def check(_subject: Subject, case: object, _corpus: object) -> object:
        found.append(case.token())  # type: ignore[attr-defined]
        return fakes.VACUOUS.check(_subject, case, _corpus)  # type: ignore[arg-type]

    noting = Property("fake_alone", "notes its cases", check)  # type: ignore[arg-type]
    monkeypatch.setattr(places, "properties", lambda: (noting,))
    stratum = "padding at the tail alone"
    ask.fault_row(work(), planted(monkeypatch, replace(fakes.LEAK, strata=(stratum,))))
    drawn = [case for _, case in in_turn(work(), places.places(KINDS, ()))]
    wanted = [case.token() for case in drawn if stratum in every_stratum_of(case, case.pack(fakes.corpus()))]
    assert 0 < len(found) < len(drawn)
    assert found == wanted


def _rewrite(monkeypatch: pytest.MonkeyPatch, *, calls: int, leaks: bool = False) -> result.Row:
    @contextmanager
    def apply(subject: Subject) -> Iterator[Ran]:
        with fakes.LEAK.apply(subject) if leaks else nullcontext():
            yield Ran(calls)

    rewrite = Rewrite("another_way", "the same in another way", apply, kinds=KINDS)
    monkeypatch.setattr(ask, "load_rewrites", lambda: (rewrite,))
    return ask.rewrite_row(work(), "another_way")


def test_a_rewrite_has_to_run_and_to_be_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _rewrite(monkeypatch, calls=1).verdict == result.QUIET
    assert _rewrite(monkeypatch, calls=0).verdict == result.INACTIVE
    assert _rewrite(monkeypatch, calls=1, leaks=True).verdict == result.ALARM


def test_the_healthy_model_is_quiet_and_a_broken_one_is_not() -> None:
    assert ask.healthy_row(work(), Place("dense", None)).verdict == result.QUIET
    assert ask.healthy_row(work("leaking"), Place("dense", None)).verdict == result.ALARM


def test_packs_of_the_size_that_people_train_on() -> None:
    corpus = fakes.corpus()
    for case in trained_cases(Place("csa", 2), corpus):
        assert (case.total, case.config, case.ranks) == (TRAINED_TOKENS, "csa", 2)
        assert len(case.lengths) > 100
    dense, in_slots = trained_cases(Place("csa", None), corpus)
    longest = max(corpus.natural_lengths(at_most=TRAINED_TOKENS))
    assert dense.slots is None
    assert dense.total - sum(dense.lengths) < longest
    assert in_slots.slots is not None
    assert all(
        slot % 16 == 0 and slot - length < 16 for slot, length in zip(in_slots.slots, in_slots.lengths, strict=True)
    )
