"""Runs and baselines for tests, made without files."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path

from harness.baseline.outcomes import Outcome
from harness.baseline.run import Result, Run
from harness.baseline.store import Baseline, baseline_of

TODAY = date(2026, 11, 29)

_ENTRY = {
    Outcome.FAIL: '<failure message="assert {why}"/>',
    Outcome.ERROR: '<error message="{why}"/>',
    Outcome.ERROR_SETUP: "<error message='failed on setup with \"{why}\"'/>",
    Outcome.ERROR_TEARDOWN: "<error message='failed on teardown with \"{why}\"'/>",
    Outcome.CRASH: "<error message=\"worker 'gw1' crashed while running '{why}'\"/>",
    Outcome.TIMEOUT: '<failure message="Failed: Timeout (&gt;1.0s) from pytest-timeout."/>',
    Outcome.XFAIL: '<skipped type="pytest.xfail" message="{why}"/>',
    Outcome.XPASS_STRICT: '<failure message="[XPASS(strict)] {why}"/>',
    Outcome.SKIP: '<skipped type="pytest.skip" message="{why}"/>',
    Outcome.PASS: "",
}


def result(name: str, outcome: Outcome = Outcome.PASS, why: str = "") -> Result:
    """One test of `t.py`; why becomes its fingerprint."""
    prints = (why or outcome.value,) if outcome is not Outcome.PASS else ()
    return Result(id=f"t.py::{name}", outcome=outcome, fingerprints=prints, message=why, file="t.py", line=1)


def run_of(*results: Result, **changes: object) -> Run:
    """A run that holds these tests."""
    values: dict[str, object] = {"results": {r.id: r for r in results}, "sources": ("run.xml",)}
    return Run(**(values | changes))  # type: ignore[arg-type]


def base_of(*results: Result) -> Baseline:
    """A baseline that holds these tests."""
    return baseline_of(run_of(*results))


def case_xml(
    name: str, *outcomes: Outcome, why: str = "reason", classname: str = "t", file: str | None = "t.py"
) -> str:
    """One `<testcase>` with an element for each outcome."""
    where = "" if file is None else f' file="{file}" line="3"'
    inside = "".join(_ENTRY[outcome].format(why=why) for outcome in outcomes)
    return f'<testcase classname="{classname}" name="{name}"{where}>{inside}</testcase>'


def write_xml(path: Path, *testcases: str) -> str:
    """A JUnit file with these testcases; its path."""
    body = "".join(testcases)
    path.write_text(f'<testsuites><testsuite name="pytest">{body}</testsuite></testsuites>', encoding="utf-8")
    return str(path)


def outcomes(run: Run) -> Mapping[str, str]:
    """What each test gave, in words, by the last part of its id."""
    return {identity.rpartition("::")[2]: found.outcome.value for identity, found in run.results.items()}
