"""What the suites of faults share: the text, cases that are the same every time, and verdicts on the healthy model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import torch
from hypothesis.strategies import SearchStrategy

from harness.case import Case
from harness.catalogue import find_property, find_subject
from harness.corpus import Corpus, load_corpus
from harness.engine import PROFILES, decide
from harness.engine.draw import Draw
from harness.engine.row import Unit
from harness.faults.registry import Fault
from harness.strata import strata_of
from harness.strategies import PackSize, cases
from harness.subjects.protocol import Subject
from harness.verdict import Verdict
from v4model import Pack

FACTORY = find_subject("v4model")

_SMALL = PackSize(min_samples=2, max_samples=4, min_tokens=30, max_tokens=90)
_QUICK = PROFILES["quick"].cases_per_kind
_MOST_DRAWN = 100
"""Cases of one size drawn at most for those that meet the strata of a fault."""


@cache
def corpus() -> Corpus:
    return load_corpus(None)


def drawn(strategy: SearchStrategy[Case], *, count: int) -> tuple[Case, ...]:
    """`count` cases, always the same; the first is the smallest that there is, one sample of one token."""
    found: list[Case] = []
    Draw(Unit("all", ()), strategy, layouts=count, seed=0).run(found.append)
    return tuple(found)


def cases_of(fault: Fault, *, kind: str) -> Iterator[Case]:
    """Cases of a kind in which the fault can show: small packs, then packs of the size that a run draws.

    Of each size as many as the quick profile draws, if so many meet the fault's strata; the search for them goes on
    only while the cases are asked for.
    """
    for size in (_SMALL, PackSize()):
        first = [case for case in _few(kind, size) if _meets(case, fault.strata)]
        yield from first
        if fault.strata and len(first) < _QUICK:
            yield from (case for case in _meeting(fault.strata, kind, size) if case not in first)


@cache
def _few(kind: str, size: PackSize) -> tuple[Case, ...]:
    return drawn(cases(kind, size=size), count=_QUICK)


@cache
def _meeting(strata: tuple[str, ...], kind: str, size: PackSize) -> tuple[Case, ...]:
    found: list[Case] = []

    def probe(case: Case) -> None:
        if _meets(case, strata):
            found.append(case)
        if len(found) == _QUICK:
            raise _Enough

    with suppress(_Enough):
        Draw(Unit("all", ()), cases(kind, size=size), layouts=_MOST_DRAWN, seed=0).run(probe)
    return tuple(found)


class _Enough(BaseException):
    """Not an Exception, which Hypothesis would take for a failure and try again."""


def _meets(case: Case, strata: tuple[str, ...]) -> bool:
    return not strata or not strata_of(case, case.pack(corpus())).isdisjoint(strata)


@cache
def on_healthy(name: str, case: Case) -> Verdict:
    return decide(find_property(name), FACTORY, case, corpus(), fault=None)


def values_of(subject: Subject, pack: Pack) -> torch.Tensor:
    """Logits, nll and sums of a forward pass in one row."""
    with torch.no_grad():
        seen = subject.observe(pack)
    tables = [table for depth in seen.depths for table in (depth.values, depth.nll)]
    return torch.cat([table.reshape(-1) for table in (*tables, *seen.sums.values())])
