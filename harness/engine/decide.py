"""Properties on one case: always a verdict, never an exception."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from harness.case import Case
from harness.corpus import Corpus
from harness.errors import UsageError
from harness.properties import Property
from harness.properties.runs import runs_are_shared
from harness.subjects.protocol import Subject, SubjectFactory
from harness.verdict import Verdict


class Planted(Protocol):
    """What is done to a subject while a property is checked on it: a fault, or a rewrite."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    @property
    def ranks(self) -> tuple[int, ...]:
        """Numbers of ranks that it is about, empty if it is about none."""
        ...

    @property
    def apply(self) -> Callable[[Subject], AbstractContextManager[object]]:
        """Plants it for as long as the context lasts."""
        ...


def decide(prop: Property, factory: SubjectFactory, case: Case, corpus: Corpus, *, fault: Planted | None) -> Verdict:
    """Build the subject for the case, plant the fault if there is one, and check the property.

    Whatever the subject or the property raises makes the verdict UNDECIDED, with the exception's type and first line;
    and so does a fault on processes, where it would not be planted, or one of ranks on a case that has none.
    """
    ((verdict, _),) = decide_together([(prop, case)], factory, corpus, fault=fault)
    return verdict


def decide_together(
    asked: Sequence[tuple[Property, Case]], factory: SubjectFactory, corpus: Corpus, *, fault: Planted | None
) -> list[tuple[Verdict, float]]:
    """A verdict for each property on its case, as `decide` gives it, with the seconds it took.

    The cases differ in their ranks only: the subject is built once, and a run that several properties ask for is made
    once, in the time of the first.
    """
    subjects: dict[tuple[int | None, bool], Subject] = {}
    verdicts = []
    with runs_are_shared():
        for prop, case in asked:
            began = time.perf_counter()
            try:
                subject = _subject(subjects, factory, case)
                verdict = _checked(prop, subject, case, corpus, fault=fault)
            except Exception as error:  # the subject is someone else's code, and its crash is a fact about it
                verdict = Verdict.undecided(describe_error(error))
            verdicts.append((verdict, time.perf_counter() - began))
    return verdicts


def _subject(built: dict[tuple[int | None, bool], Subject], factory: SubjectFactory, case: Case) -> Subject:
    """The subject on the case's ranks, one of those built so far if it is there."""
    one, wanted = (None, False), (case.ranks, case.processes)
    if one not in built:
        built[one] = factory(case.v4config(), case.torch_dtype(), case.seed)
    if wanted not in built:
        built[wanted] = on_ranks(built[one], case)
    return built[wanted]


def _checked(prop: Property, subject: Subject, case: Case, corpus: Corpus, *, fault: Planted | None) -> Verdict:
    if fault is not None and case.processes:
        return Verdict.undecided(f"fault {fault.name} can be planted on ranks in one process, not on others")
    if fault is not None and fault.ranks and case.ranks is None:
        sizes = " or ".join(f"@{ranks}" for ranks in fault.ranks)
        return Verdict.undecided(f"fault {fault.name} is one of ranks, and the case runs on none (write {sizes})")
    if case.dtype not in prop.dtypes:
        return Verdict.undecided(f"{prop.name} is decided in {' or '.join(prop.dtypes)}, not in {case.dtype}")
    with nullcontext() if fault is None else fault.apply(subject):
        verdict: object = prop.check(subject, case, corpus)
    if not isinstance(verdict, Verdict):
        return Verdict.undecided(f"the check returned {type(verdict).__name__} instead of a Verdict")
    return verdict


def on_ranks(subject: Subject, case: Case) -> Subject:
    """The subject as the case wants it, on one rank or on several; raises UsageError if it has no ranks to offer."""
    if case.ranks is None:
        return subject
    make = getattr(subject, "on_ranks", None)
    if make is None:
        raise UsageError(
            got=f"{subject.name} without on_ranks(ranks)", expected="a subject with ranks", where="subject"
        )
    ranked: Subject = make(case.ranks, processes=case.processes)
    return ranked


def describe_error(error: BaseException) -> str:
    """An exception's type and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
