"""Properties on one case: always a verdict, never an exception."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch

from harness.case import DTYPES, Case
from harness.corpus import Corpus
from harness.errors import CRASHES, UsageError
from harness.kinds import config_from_text
from harness.properties import Property
from harness.properties.runs import runs_are_shared
from harness.subjects.missing import missing_is_noted
from harness.subjects.packs_records import PacksRecords
from harness.subjects.protocol import Subject, SubjectFactory, Unsupported
from harness.subjects.support import kept_clear, refusal, unsupported_by, widest_dtype
from harness.verdict import Outcome, Verdict


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

    What the subject does not support makes the verdict UNDECIDED, with its own reason, whether it declared it or raised
    `Unsupported`. So does whatever else it or the property raises, with the exception's type and first line; and a
    fault on processes, where it would not be planted, or one of ranks on a case that has none.
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
            except Unsupported as error:
                verdict = Verdict.undecided(_unsupported(error, subjects.get((None, False), factory)))
            except CRASHES as error:  # the subject is someone else's code, and its crash is a fact about it
                verdict = Verdict.undecided(describe_error(error))
            verdicts.append((verdict, time.perf_counter() - began))
    return verdicts


def _subject(built: dict[tuple[int | None, bool], Subject], factory: SubjectFactory, case: Case) -> Subject:
    """The subject on the case's ranks, one of those built so far if it is there."""
    one, wanted = (None, False), (case.ranks, case.processes)
    if one not in built:
        _check_supported(factory, case)
        built[one] = factory(case.v4config(), case.torch_dtype(), case.seed)
    _check_supported(built[one], case)
    if wanted not in built:
        built[wanted] = on_ranks(built[one], case)
    return built[wanted]


def _check_supported(thing: object, case: Case) -> None:
    """Raises Unsupported for a case that needs what a factory or a subject declares unsupported."""
    unsupported = unsupported_by(thing)
    reason = refusal(case, unsupported)
    if reason is not None:
        clear = kept_clear(case, unsupported)
        raise Unsupported(reason if refusal(clear, unsupported) else f"{reason}; ask {clear.token()} instead")


def _unsupported(error: Unsupported, thing: object) -> str:
    name = getattr(thing, "name", None) or getattr(thing, "__name__", type(thing).__name__)
    lines = str(error).strip().splitlines()
    return f"{name} does not support it: {lines[0] if lines else 'no reason given'}"


def _checked(prop: Property, subject: Subject, case: Case, corpus: Corpus, *, fault: Planted | None) -> Verdict:
    if fault is not None and case.processes:
        return Verdict.undecided(f"fault {fault.name} can be planted on ranks in one process, not on others")
    if fault is not None and fault.ranks and case.ranks is None:
        sizes = " or ".join(f"@{ranks}" for ranks in fault.ranks)
        return Verdict.undecided(f"fault {fault.name} is one of ranks, and the case runs on none (write {sizes})")
    if case.dtype not in (dtypes := decided_in(prop, unsupported_by(subject))):
        return Verdict.undecided(f"{prop.name} is decided in {' or '.join(dtypes)}, not in {case.dtype}")
    with nullcontext() if fault is None else fault.apply(subject), missing_is_noted() as missing:
        verdict: object = prop.check(subject, case, corpus)
    if not isinstance(verdict, Verdict):
        return Verdict.undecided(f"the check returned {type(verdict).__name__} instead of a Verdict")
    if verdict.outcome is Outcome.HOLDS and missing:
        raise Unsupported(missing[0])
    return verdict


def decided_in(prop: Property, unsupported: Mapping[str, str]) -> tuple[str, ...]:
    """The dtypes that a property can be decided in, of those that a subject has if it has one.

    Where a subject lacks them all, a property whose bound follows rounding takes the widest that it has.
    """
    had = tuple(dtype for dtype in prop.dtypes if dtype not in unsupported)
    widest = widest_dtype(unsupported)
    if not had and prop.rounded and widest:
        return (widest,)
    return had or prop.dtypes


def check_plantable(fault: Planted, factory: SubjectFactory, *, name: str) -> None:
    """Raises UsageError for a fault that the subject of that name does not let be planted.

    Faults are planted in the modules of `V4Model`; a subject that is not built on it would run healthy.
    """
    try:
        with fault.apply(factory(config_from_text("all"), torch.float64, 0)):
            pass
    except UsageError as error:
        raise UsageError(got=f"fault {fault.name} on {error.got}", expected=error.expected, where=name) from error
    except CRASHES:  # of this subject, which is not the case's own: that one will tell
        return


def packs_records(factory: SubjectFactory) -> bool:
    """Whether its subjects make packs of records too; False where none can be built to look at."""
    try:
        unsupported = unsupported_by(factory)
        case = kept_clear(Case.from_token(f"all/4/s0/{widest_dtype(unsupported) or DTYPES[0]}"), unsupported)
        return isinstance(factory(case.v4config(), case.torch_dtype(), case.seed), PacksRecords)
    except CRASHES:  # of this subject, which the cases will tell
        return False


def on_ranks(subject: Subject, case: Case) -> Subject:
    """The subject as the case wants it, on one rank or on several; raises Unsupported if it has no ranks to offer."""
    if case.ranks is None:
        return subject
    make = getattr(subject, "on_ranks", None)
    if make is None:
        raise Unsupported("it runs on no ranks (no method on_ranks)")
    ranked: Subject = make(case.ranks, processes=case.processes)
    return ranked


def describe_error(error: BaseException) -> str:
    """An exception's type and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
