"""One property on one case: always a verdict, never an exception."""

from __future__ import annotations

from contextlib import nullcontext

from harness.case import Case
from harness.corpus import Corpus
from harness.errors import UsageError
from harness.faults.registry import Fault
from harness.properties import Property
from harness.subjects.protocol import Subject, SubjectFactory
from harness.verdict import Verdict


def decide(prop: Property, factory: SubjectFactory, case: Case, corpus: Corpus, *, fault: Fault | None) -> Verdict:
    """Build the subject for the case, plant the fault if there is one, and check the property.

    Whatever the subject or the property raises makes the verdict UNDECIDED, with the exception's type and first line;
    and so does a fault on processes, where it would not be planted.
    """
    if fault is not None and case.processes:
        return Verdict.undecided(f"fault {fault.name} can be planted on ranks in one process, not on others")
    try:
        subject = on_ranks(factory(case.v4config(), case.torch_dtype(), case.seed), case)
        with nullcontext() if fault is None else fault.apply(subject):
            verdict: object = prop.check(subject, case, corpus)
    except Exception as error:  # the subject is someone else's code, and its crash is a fact about it
        return Verdict.undecided(describe_error(error))
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
