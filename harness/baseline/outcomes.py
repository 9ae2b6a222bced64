"""How one test can end, and which ending wins when a test has several."""

from __future__ import annotations

import enum
from collections.abc import Iterable


class Outcome(enum.Enum):
    """Every way a test can end; the values are what baseline files and reports say."""

    PASS = "pass"
    FAIL = "fail"
    ERROR = "error"
    ERROR_SETUP = "error (setup)"
    ERROR_TEARDOWN = "error (teardown)"
    CRASH = "crash"
    TIMEOUT = "timeout"
    XFAIL = "xfail"
    XPASS_STRICT = "xpass (strict)"
    SKIP = "skip"
    NOT_RUN = "not run"
    COLLECTION_ERROR = "collection error"
    RERUN = "re-run"  # an attempt that failed and was repeated; the later attempts decide
    ABSENT = "absent"

    __hash__ = object.__hash__  # members are single; Enum's own hash is Python code, called a million times a run


# From gravest to lightest. A pass never covers a failure, nor a skip; what did not run covers nothing.
_GRAVITY = (
    Outcome.CRASH,
    Outcome.TIMEOUT,
    Outcome.COLLECTION_ERROR,
    Outcome.FAIL,
    Outcome.XPASS_STRICT,
    Outcome.ERROR,
    Outcome.ERROR_SETUP,
    Outcome.ERROR_TEARDOWN,
    Outcome.SKIP,
    Outcome.XFAIL,
    Outcome.PASS,
    Outcome.RERUN,
    Outcome.NOT_RUN,
    Outcome.ABSENT,
)
_RANK = {outcome: rank for rank, outcome in enumerate(_GRAVITY)}

RED = frozenset(_GRAVITY[:8])
"""The outcomes of a test that did not do what it should."""
LOST = frozenset({Outcome.CRASH, Outcome.TIMEOUT})
"""The test itself never came to an end."""
IDLE = frozenset({Outcome.SKIP, Outcome.NOT_RUN})
"""The test is there and was not carried out."""
UNREAL = frozenset({Outcome.CRASH, Outcome.TIMEOUT, Outcome.COLLECTION_ERROR, Outcome.NOT_RUN, Outcome.RERUN})
"""What says more about the machine or the session than about the test; no baseline holds it."""


def gravest(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome that speaks for a test with several; ABSENT for none. The order of the outcomes does not matter."""
    return min(outcomes, key=_RANK.__getitem__, default=Outcome.ABSENT)
