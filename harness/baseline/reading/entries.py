"""What one element inside a `<testcase>` means; pytest's own words and those of other writers."""

from __future__ import annotations

import re

from harness.baseline.fingerprint import fingerprint, first_line, normal_line
from harness.baseline.outcomes import Outcome
from harness.baseline.run import Attempt

COLLECTION_FAILURE = "collection failure"
COLLECTION_SKIPPED = "collection skipped"

TAGS = frozenset("failure error skipped rerun flakyFailure flakyError rerunFailure rerunError".split())
"""The elements that say how a test ended. The last four are Maven Surefire's for attempts that were repeated."""
PASSED_IN_THE_END = frozenset({"flakyFailure", "flakyError"})
"""Failed attempts of a test that passed in its last one."""

_CRASH = re.compile(r"worker '?\w+'? crashed while running")
_TIMEOUT = re.compile(r"(?:Failed: )?Timeout (?:\(>\s?|>\s?)[\d.]+\s?s|test timed out after \d+", re.IGNORECASE)
_PHASE = re.compile(r"failed on (setup|teardown) with ")
_MESSAGE_CHARACTERS = 300


def attempt(tag: str, *, kind: str, message: str, text: str) -> Attempt:
    """The attempt that one element tells of; message and text are as the file has them."""
    said = message if message.strip() else text
    if tag == "skipped":
        return _idle(kind, said)
    if tag not in ("failure", "error"):
        return _red(Outcome.RERUN, "call", kind, said)
    found = _PHASE.match(message)
    phase = found[1] if found else "call"
    if _CRASH.search(message):
        return Attempt(outcome=Outcome.CRASH, fingerprint="crash: worker crashed", message=_shown(said))
    if _TIMEOUT.match(message) or kind.endswith("TestTimedOutException"):
        return _red(Outcome.TIMEOUT, phase, kind, said)
    if message == COLLECTION_FAILURE:
        return Attempt(outcome=Outcome.COLLECTION_ERROR, fingerprint="collection", message=_shown(text or said))
    if message.startswith("[XPASS(strict)]"):
        return _red(Outcome.XPASS_STRICT, "call", "", said)
    if tag == "failure":
        return _red(Outcome.FAIL, phase, kind, said)
    outcome = {"setup": Outcome.ERROR_SETUP, "teardown": Outcome.ERROR_TEARDOWN}.get(phase, Outcome.ERROR)
    return _red(outcome, phase, kind, said)


def _idle(kind: str, said: str) -> Attempt:
    if said == "xfail-marked test passes unexpectedly":  # what pytest wrote for it before 3.0
        return Attempt(outcome=Outcome.PASS, message=said)
    outcome = Outcome.XFAIL if kind == "pytest.xfail" else Outcome.SKIP
    why = f"{outcome.value}: {normal_line(first_line(said))}".removesuffix(": ")
    return Attempt(outcome=outcome, fingerprint=why, message=_shown(said))


def _red(outcome: Outcome, phase: str, kind: str, said: str) -> Attempt:
    return Attempt(outcome=outcome, fingerprint=fingerprint(said, phase=phase, kind=kind), message=_shown(said))


def _shown(said: str) -> str:
    return first_line(said)[:_MESSAGE_CHARACTERS]
