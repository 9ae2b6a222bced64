"""One property on one case: always a verdict, never an exception."""

from __future__ import annotations

from contextlib import nullcontext

from harness.case import Case
from harness.corpus import Corpus
from harness.faults.registry import Fault
from harness.properties import Property
from harness.subjects.protocol import SubjectFactory
from harness.verdict import Verdict


def decide(prop: Property, factory: SubjectFactory, case: Case, corpus: Corpus, *, fault: Fault | None) -> Verdict:
    """Build the subject for the case, plant the fault if there is one, and check the property.

    Whatever the subject or the property raises makes the verdict UNDECIDED, with the exception's type and first line.
    """
    try:
        subject = factory(case.v4config(), case.torch_dtype(), case.seed)
        with nullcontext() if fault is None else fault.apply(subject):
            verdict: object = prop.check(subject, case, corpus)
    except Exception as error:  # the subject is someone else's code, and its crash is a fact about it
        return Verdict.undecided(describe_error(error))
    if not isinstance(verdict, Verdict):
        return Verdict.undecided(f"the check returned {type(verdict).__name__} instead of a Verdict")
    return verdict


def describe_error(error: BaseException) -> str:
    """An exception's type and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
