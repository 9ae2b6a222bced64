"""Verdicts of adapters of public models on cases that are kept clear of what they lack."""

from __future__ import annotations

from functools import lru_cache

import pytest

from harness.case import Case
from harness.catalogue import find_property, find_subject
from harness.corpus import load_corpus
from harness.engine import decide
from harness.peers.environment import FOLDER, Environment
from harness.subjects.support import kept_clear, unsupported_by
from harness.verdict import Outcome, Verdict
from suites.repo import tree

NEMO = Environment("nemo_automodel-0.7.0", tree.ROOT / FOLDER)

needs_nemo = pytest.mark.skipif(not NEMO.exists, reason=f"no environment: {NEMO.command}")


def nemo(factory: str) -> str:
    """The subject of a worker in nemo_automodel's environment."""
    return f"worker:{NEMO.python}:harness.subjects.peer_nemo_automodel:{factory}"


@lru_cache
def verdict(subject: str, prop: str, token: str) -> Verdict:
    """The verdict on a case, once."""
    factory = find_subject(subject)
    case = kept_clear(Case.from_token(token), unsupported_by(factory))
    return decide(find_property(prop), factory, case, load_corpus(None), fault=None)


def holds(subject: str, prop: str, token: str) -> bool:
    """Whether the property holds; fails with the reason where it could not be decided."""
    found = verdict(subject, prop, token)
    assert found.outcome in (Outcome.HOLDS, Outcome.VIOLATED), found.reason
    return found.outcome is Outcome.HOLDS
