"""`harness report`: files, history, baseline, one sentence for bad input, speed, and a year of nights."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from harness import cli
from harness.baseline.outcomes import Outcome
from harness.baseline.run import Result, Run
from harness.nightly.history import History
from harness.nightly.night import Facts, Night, PropertyRun
from harness.report import UnitResult
from harness.verdict import Outcome as Verdict
from suites.harness.nightly.made import KEY, NIGHTS, REGRESSES, Test, write_night, write_nights, write_results
from suites.harness.startup import assert_at_once, children_s
from suites.repo import tree


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def _report(*arguments: str) -> int:
    return cli.run_cli(["report", *arguments])


def test_help_answers_at_once_and_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'hypothesis', 'numpy', 'jinja2', 'matplotlib', 'sqlite3', 'pytest'}"
    code = "import sys; from harness.cli import run_cli; run_cli(['report', '--help']); "
    code += f"sys.exit(' '.join({heavy} & sys.modules.keys()) or 0)"

    def run() -> None:
        done = subprocess.run([sys.executable, "-c", code], cwd=tree.ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "Exit codes: 0 written, whatever it says" in " ".join(done.stdout.split())

    assert_at_once(run)


def test_the_report_imports_no_torch(tmp_path: Path) -> None:
    night = write_night(tmp_path, 0, last=1, tests=60)
    code = f"import sys; from harness.cli import run_cli; run_cli(['report', {str(night)!r}]); "
    code += "sys.exit(' '.join({'torch', 'hypothesis', 'v4model.model'} & sys.modules.keys()) or 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tree.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_three_files_lie_beside_the_night(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folders = write_nights(tmp_path / "nights", nights=2, tests=60)
    assert _report(*map(str, folders)) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith("failed: 3 regressions; ")
    assert sorted(path.name for path in folders[-1].glob("page.*")) == ["page.html", "page.json", "page.md"]
    assert not list(folders[0].glob("page.*"))


def test_a_history_grows_and_gives_the_nights_before(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folders = write_nights(tmp_path / "nights", nights=4, tests=60)
    for folder in folders:
        assert _report(str(folder), "--history", "h.sqlite", "--output", "json:page.json") == 0
    told = json.loads((tmp_path / "page.json").read_text(encoding="utf-8"))
    assert "4 nights known, 4 in trends" in told["context"]
    assert REGRESSES in json.dumps(told)
    # An older night, again: what came after it is not told, and nothing is appended twice.
    assert _report(str(folders[1]), "--history", "h.sqlite", "--output", "json:page.json") == 0
    assert "2 nights known" in json.loads((tmp_path / "page.json").read_text(encoding="utf-8"))["context"]
    assert len(History(tmp_path / "h.sqlite").nights().summaries) == 4
    (folders[3] / "faults.json").unlink()
    assert _report(str(folders[3]), "--history", "h.sqlite", "--output", "markdown:page.md") == 0
    assert "holds other figures of this night than its folder" in (tmp_path / "page.md").read_text(encoding="utf-8")
    capsys.readouterr()


def test_loose_runs_are_told_against_a_history_and_not_kept_there(tmp_path: Path) -> None:
    folders = write_nights(tmp_path / "nights", nights=3, tests=60)
    assert _report(*map(str, folders[:2]), "--history", "h.sqlite") == 0
    loose = folders[2] / "suites" / "results.jsonl"
    assert _report(str(loose), "--history", "h.sqlite", "--output", "json:page.json") == 0
    assert "3 nights known, 3 in trends" in (tmp_path / "page.json").read_text(encoding="utf-8")
    assert len(History(tmp_path / "h.sqlite").nights().summaries) == 2


def test_the_baseline_of_the_configuration_is_found(tmp_path: Path) -> None:
    folders = write_nights(tmp_path / "nights", nights=2, tests=60)
    lines = str(folders[0] / "suites" / "results.jsonl")
    assert cli.run_cli(["record-baseline", lines, "--reason", "synthetic"]) == 0
    assert (tmp_path / "baselines" / KEY).is_dir()
    assert _report(*map(str, folders), "--output", "json:page.json") == 0
    told = (tmp_path / "page.json").read_text(encoding="utf-8")
    assert "Against the baseline: 1 regression, 37 still failing" in told
    assert f"baselines/{KEY} (2026-11-17)" in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gone"], "got no file gone"),
        (["night", "--output", "pdf:a.pdf"], "got --output pdf:a.pdf"),
        (["night", "--output", "html"], "got --output html"),
        (["night", "--output", "html:night/night.json/a"], "expected a file to write"),
        (["night", "--history", "night/night.json"], "expected a history of nights"),
        (["night", "--baseline", "gone"], "expected a baseline's file"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_night(tmp_path, 0, last=1, tests=60).rename(tmp_path / "night")
    assert _report(*arguments) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1


TESTS = 5_000
NIGHTS_OF_A_YEAR = 365


def _year(history: History) -> None:
    """A year of nights of 5,000 tests, some of them flakes, some slower and slower, with 60 measured errors a night."""
    random = np.random.default_rng(0)
    names = [f"suites/part{n % 37}/test_{n % 211}.py::test_something_or_other[{n}]" for n in range(TESTS)]
    begin = datetime(2025, 11, 29, tzinfo=UTC)
    made: list[dict[str, Result]] = []
    for number in range(NIGHTS_OF_A_YEAR // 10):
        red = set(random.choice(200, size=random.poisson(6), replace=False))
        seconds = random.gamma(2, 0.2, size=TESTS) * (1 + np.arange(TESTS) % 50 * number / 2_000)
        made.append(
            {
                name: Result(name, Outcome.FAIL, ("call: AssertionError",), seconds=took)
                if n in red
                else Result(name, Outcome.PASS, seconds=took)
                for n, (name, took) in enumerate(zip(names, seconds.tolist(), strict=True))
            }
        )
    for number in range(NIGHTS_OF_A_YEAR):
        units = tuple(
            UnitResult(
                property_name=f"property_{n % 15}",
                kind=f"{('all', 'csa', 'dense', 'hca')[n % 4]}@{n // 15}",
                outcome=Verdict.HOLDS,
                counts={Verdict.HOLDS: 75},
                error=float(10 ** random.uniform(-13, -12)),
                bound=1e-9,
            )
            for n in range(60)
        )
        started = (begin + timedelta(days=number)).isoformat()
        facts = Facts(stamp=started[:10].replace("-", ""), started=started, versions={}, key=KEY)
        run = Run(results=made[number // 10 % len(made)], sources=("run",))
        runs = (PropertyRun(folder=Path("fuzz"), units=units, report=None),)
        history.append(Night(facts=facts, suites=run, runs=runs))


def test_a_year_of_5000_tests_is_a_page_in_ten_seconds(tmp_path: Path) -> None:
    _year(History(tmp_path / "h.sqlite"))
    night = write_night(tmp_path, NIGHTS - 1, last=NIGHTS - 1, tests=60)
    names = [f"suites/part{n % 37}/test_{n % 211}.py::test_something_or_other[{n}]" for n in range(TESTS)]
    write_results(night / "suites" / "results.jsonl", [Test(name, 0.4) for name in names], datetime.now(UTC))
    code = "import sys; from harness.cli import run_cli; "
    code += f"sys.exit(run_cli(['report', {str(night)!r}, '--history', {str(tmp_path / 'h.sqlite')!r}]))"

    def run() -> None:
        done = subprocess.run([sys.executable, "-c", code], cwd=tree.ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    seconds = children_s(run)
    page, history = (night / "page.html").stat().st_size, (tmp_path / "h.sqlite").stat().st_size
    summary = (night / "page.md").stat().st_size
    print(f"{seconds:.1f} s, page {page / 1e6:.2f} MB, Markdown {summary / 1e3:.0f} kB, history {history / 1e6:.1f} MB")
    assert "366 nights known, 366 in trends" in (night / "page.md").read_text(encoding="utf-8")
    assert seconds <= 10
    assert page < 3_000_000
    assert summary < 1 << 20


@pytest.mark.parametrize(
    ("what", "verdict", "idle", "said"),
    [
        ("fault", "caught", [], "passed: 1 of 1 fault is caught"),
        ("fault", "vacuous", [], "failed: 0 of 1 fault are caught"),
        ("fault", "undecided", [], "undecided: 0 of 1 fault are caught"),
        ("healthy", "undecided", [], "undecided: 0 of 0 faults are caught"),
        ("rewrite", "alarm", [], "failed: 0 of 0 faults are caught"),
        ("fault", "caught", ["a_property"], "failed: 1 of 1 fault is caught"),
    ],
)
def test_a_matrix_is_told_as_its_own_exit_code_says(
    what: str, verdict: str, idle: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    row = {"name": "A1", "what": what, "title": "t", "expected": None, "verdict": verdict, "cells": {}}
    content = {"schema_version": 1, "properties": [], "rows": [row], "idle": idle}
    (tmp_path / "faults.json").write_text(json.dumps(content), encoding="utf-8")
    assert _report(str(tmp_path / "faults.json"), "--output", f"json:{tmp_path / 'page.json'}") == 0
    assert capsys.readouterr().out.splitlines()[-1] == said


def test_a_night_under_way_is_shown_and_not_kept(tmp_path: Path) -> None:
    newest = write_nights(tmp_path)[-1]
    facts = newest / "night.json"
    history = tmp_path / "history.sqlite"
    complete = facts.read_text(encoding="utf-8")
    facts.write_text(json.dumps({**json.loads(complete), "ended": None}), encoding="utf-8")
    assert _report(str(newest), "--history", str(history)) == 0
    assert not history.exists()
    facts.write_text(complete, encoding="utf-8")
    assert _report(str(newest), "--history", str(history)) == 0
    assert len(History(history).nights().summaries) == 1
