"""What the suites of faults share: the text, cases that are the same every time, and verdicts on the healthy model."""

from __future__ import annotations

from functools import cache

from hypothesis.strategies import SearchStrategy

from harness.case import Case
from harness.catalogue import find_property, find_subject
from harness.corpus import Corpus, load_corpus
from harness.engine import decide
from harness.engine.draw import Draw
from harness.engine.row import Unit
from harness.verdict import Verdict

FACTORY = find_subject("v4model")


@cache
def corpus() -> Corpus:
    return load_corpus(None)


def drawn(strategy: SearchStrategy[Case], *, count: int) -> tuple[Case, ...]:
    """`count` cases, always the same; the first is the smallest that there is, one sample of one token."""
    found: list[Case] = []
    Draw(Unit("all", ()), strategy, layouts=count, seed=0).run(found.append)
    return tuple(found)


@cache
def on_healthy(name: str, case: Case) -> Verdict:
    return decide(find_property(name), FACTORY, case, corpus(), fault=None)
