"""What the suites of faults share: the text, cases that are the same every time, and verdicts on the healthy model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import hypothesis
from hypothesis.strategies import SearchStrategy

from harness.case import Case
from harness.catalogue import find_property, find_subject
from harness.corpus import Corpus, load_corpus
from harness.engine import decide
from harness.verdict import Verdict

FACTORY = find_subject("v4model")


@cache
def corpus() -> Corpus:
    return load_corpus(None)


def drawn(
    strategy: SearchStrategy[Case], *, count: int, suppressed: Sequence[hypothesis.HealthCheck] = ()
) -> tuple[Case, ...]:
    """`count` cases, always the same; the first is the smallest that there is, one sample of one token."""
    found: list[Case] = []

    @hypothesis.seed(0)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        phases=(hypothesis.Phase.generate,),
        suppress_health_check=tuple(suppressed),
    )
    @hypothesis.given(strategy)
    def draw(case: Case) -> None:
        found.append(case)

    draw()
    return tuple(found)


@cache
def on_healthy(name: str, case: Case) -> Verdict:
    return decide(find_property(name), FACTORY, case, corpus(), fault=None)
