"""Whole runs: plans, processes, files as they come, and what is left when a run is killed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import pytest
import torch

from harness import catalogue
from harness.engine import PROFILES, Plan, run
from harness.engine.pool import in_processes
from harness.engine.unit import Work, search_unit, undecided_unit
from harness.errors import UsageError
from harness.kinds import KINDS
from harness.report import Report, UnitResult
from harness.verdict import Outcome
from suites.harness import fakes

SMALL = replace(PROFILES["quick"], name="small", cases_per_kind=6, shrink_cases=50)


def plan(*names: str, subject: str = "healthy", fault: str | None = None) -> Plan:
    """A plan for fake properties on a fake subject."""
    return Plan(
        properties=tuple(fakes.named(name) for name in names),
        subject=fakes.named(subject),
        profile=SMALL,
        corpus=fakes.corpus(),
        fault=fault,
    )


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """What results.jsonl holds; a line that was cut off would not parse."""
    return [json.loads(line) for line in (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()]


def without_seconds(report: Report) -> list[dict[str, Any]]:
    """The units as JSON, without what no two runs share."""
    return [{key: value for key, value in unit.to_json().items() if key != "seconds"} for unit in report.units]


def test_a_healthy_subject_holds_everywhere(tmp_path: Path) -> None:
    seen: list[UnitResult] = []
    report = run(plan("ALONE"), folder=tmp_path, done=seen.append)
    assert [unit.kind for unit in report.units] == list(KINDS)
    assert seen == list(report.units)
    assert report.exit_code == 0
    assert len(lines_of(tmp_path)) == 4
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["exit_code"] == 0
    assert (tmp_path / "junit.xml").exists()


def test_a_leak_is_reported_with_a_case_to_replay(tmp_path: Path) -> None:
    report = run(plan("ALONE", subject="leaking"), folder=tmp_path)
    assert report.exit_code == 1
    assert {finding.token for unit in report.units for finding in unit.findings} == {f"{kind}/1.1/s0" for kind in KINDS}
    assert len(list(tmp_path.glob("case-*.json"))) == 4


def test_a_subject_that_raises_leaves_the_run_undecided(tmp_path: Path) -> None:
    report = run(plan("ALONE", subject="raising"), folder=tmp_path)
    assert (report.outcome, report.exit_code) == (Outcome.UNDECIDED, 3)
    assert all("MemoryError" in unit.reason for unit in report.units)


def test_a_run_of_nothing_but_vacuous_checks_is_not_a_pass(tmp_path: Path) -> None:
    report = run(plan("VACUOUS"), folder=tmp_path)
    assert (report.outcome, report.exit_code) == (Outcome.VACUOUS, 3)


def test_one_vacuous_property_among_others_is_not_a_pass(tmp_path: Path) -> None:
    assert run(plan("ALONE", "VACUOUS"), folder=tmp_path).exit_code == 3


def test_a_planted_fault_is_caught_on_its_kinds_and_taken_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "load_faults", lambda: (fakes.LEAK,))
    report = run(plan("ALONE", fault="Z1"), folder=tmp_path)
    assert [unit.kind for unit in report.units] == ["dense", "csa"]
    assert {unit.outcome for unit in report.units} == {Outcome.VIOLATED}
    assert "fault Z1" in report.headline
    assert "--fault Z1" in report.replay_commands(report.units[0])[0]
    assert run(plan("ALONE"), folder=tmp_path).exit_code == 0


@pytest.mark.parametrize("name", ["no_such_subject", "suites.harness.no_module:x", "suites.harness.fakes:NOT_CALLABLE"])
def test_a_wrong_name_is_refused_before_anything_runs(name: str, tmp_path: Path) -> None:
    wrong = Plan(properties=(fakes.named("ALONE"),), subject=name, profile=SMALL, corpus=fakes.corpus())
    with pytest.raises(UsageError, match="subject"):
        run(wrong, folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_two_processes_find_what_one_finds(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    mixed = plan("ALONE", "VACUOUS", subject="leaking")
    one = run(mixed, folder=tmp_path, jobs=1)
    two = run(mixed, folder=tmp_path, jobs=2)
    assert two.jobs == 2
    assert without_seconds(two) == without_seconds(one)
    assert len(lines_of(tmp_path)) == len(two.units) == 8
    assert torch.get_num_threads() == threads


def test_a_worker_that_dies_costs_no_finished_result() -> None:
    # One worker: what is finished when it dies does not depend on the pace of another.
    deadly = plan("DEADLY")
    work = Work(subject=deadly.subject, profile=SMALL, corpus=deadly.corpus, seed=None, fault=None)
    finished = in_processes(search_unit, work, deadly.units(), jobs=1, lost=undecided_unit)
    results = {unit.kind: result for unit, (result,) in finished}
    assert list(results) == list(KINDS)
    assert "worker process lost: BrokenProcessPool" in results["hca"].reason
    assert [kind for kind, result in results.items() if result.outcome is Outcome.HOLDS] == ["all", "dense", "csa"]


def test_a_run_that_lost_a_worker_is_undecided(tmp_path: Path) -> None:
    report = run(plan("DEADLY"), folder=tmp_path, jobs=2)
    assert (report.outcome, report.exit_code) == (Outcome.UNDECIDED, 3)
    assert [unit.kind for unit in report.units] == list(KINDS)


_RUN = """
import sys
from pathlib import Path
from harness.engine import run
from suites.harness.test_engine import plan
if __name__ == "__main__":
    run(plan("GATED"), folder=Path("."), jobs=int(sys.argv[1]))
"""


@contextmanager
def run_at_the_gate(folder: Path, *, jobs: int) -> Iterator[tuple[subprocess.Popen[bytes], TextIO, int]]:
    """A run in another process whose last unit waits; yields it, the pipe that its checker holds, and that one's id."""
    os.mkfifo(folder / "gate")
    (folder / "main.py").write_text(_RUN, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "main.py", str(jobs)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        start_new_session=True,
    )
    try:
        with (folder / "gate").open(encoding="ascii") as gate:
            yield process, gate, int(gate.readline())
    finally:
        # The whole group, so that a worker which did outlive its run does not outlive this test.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ends(gate: TextIO) -> bool:
    """Whether the process at the other end of the pipe is gone within twenty seconds."""
    ready, _, _ = select.select([gate], [], [], 20)
    return bool(ready) and gate.read() == ""


def test_a_killed_run_keeps_what_was_finished(tmp_path: Path) -> None:
    with run_at_the_gate(tmp_path, jobs=1) as (process, gate, pid):
        assert pid == process.pid
        process.send_signal(signal.SIGKILL)
        assert ends(gate)
    assert [line["kind"] for line in lines_of(tmp_path)] == ["all", "dense", "csa"]
    assert not (tmp_path / "report.json").exists()


def test_no_worker_outlives_a_killed_run(tmp_path: Path) -> None:
    with run_at_the_gate(tmp_path, jobs=2) as (process, gate, pid):
        assert pid != process.pid
        process.send_signal(signal.SIGKILL)
        assert ends(gate)
    assert {line["outcome"] for line in lines_of(tmp_path)} <= {"HOLDS"}
