"""`make` installs once, and `.ci/run` fails when any step fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from suites.repo import tree


def _planned(folder: Path, target: str) -> str:
    """The commands that make would run for a target."""
    # Without MAKEFLAGS: when these tests run under `make test`, its variables must not reach this make.
    environment = {"PATH": os.environ["PATH"]}
    run = subprocess.run(
        ["make", "-n", target], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return run.stdout


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder as it is after an installation: the files make looks at, and a newer stamp."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(tree.ROOT / name, tmp_path / name)
        os.utime(tmp_path / name, (1_000, 1_000))
    stamp = tmp_path / ".venv" / ".installed"
    stamp.parent.mkdir()
    stamp.touch()
    os.utime(stamp, (2_000, 2_000))
    return tmp_path


TARGETS = ["verify", "test", "diff", "baseline", "lint"]


@pytest.mark.parametrize("target", TARGETS)
def test_a_second_run_does_not_install(installed: Path, target: str) -> None:
    assert "pip install" not in _planned(installed, target)


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
@pytest.mark.parametrize("target", TARGETS)
def test_changed_requirements_are_installed_first(installed: Path, target: str, changed: str) -> None:
    os.utime(installed / changed, (3_000, 3_000))
    assert "pip install" in _planned(installed, target)


@pytest.mark.parametrize("target", TARGETS)
def test_a_missing_environment_is_made_first(installed: Path, target: str) -> None:
    shutil.rmtree(installed / ".venv")
    assert "-m venv" in _planned(installed, target)


def _ci(tmp_path: Path, broken: str, **variables: str) -> tuple[int, str]:
    """Run `.ci/run` with a make that fails for one target and says how it was called."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "results.jsonl").write_text("stale", encoding="utf-8")
    shutil.copy(tree.ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    fake = tmp_path / "bin" / "make"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\necho "make $*"\ncase " $* " in *" {broken} "*) exit 2;; esac\n')
    fake.chmod(0o755)
    environment = {"PATH": f"{fake.parent}:/usr/bin:/bin", "CI": "true", **variables}
    run = subprocess.run(
        [str(tmp_path / ".ci" / "run")], env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    assert not (tmp_path / "reports" / "results.jsonl").exists(), "results of an earlier run would be judged"
    return run.returncode, run.stdout + run.stderr


@pytest.mark.parametrize(("broken", "status"), [("none", 0), ("lint", 1), ("diff", 1)])
def test_ci_runs_every_step_and_reports_the_failed_one(tmp_path: Path, broken: str, status: int) -> None:
    code, out = _ci(tmp_path, broken)
    assert code == status, out
    outcomes = dict(re.findall(r"^== (lint|diff): (passed|FAILED)", out, re.MULTILINE))
    assert outcomes == {name: "FAILED" if name == broken else "passed" for name in ("lint", "diff")}
    assert "make --no-print-directory test" in out


def test_the_status_of_pytest_alone_decides_nothing(tmp_path: Path) -> None:
    code, out = _ci(tmp_path, "test")
    assert code == 0, out
    assert "== test: status 2; the next step decides" in out
    assert out.index("the next step decides") < out.index("make --no-print-directory diff")


def test_tests_of_pages_get_a_browser_where_one_can_be_had(tmp_path: Path) -> None:
    code, out = _ci(tmp_path, "browser")
    assert code == 0, out
    assert out.index("== browser: status 2") < out.index("make --no-print-directory test")


def test_on_github_the_comparison_is_in_the_summary_and_beside_the_lines(tmp_path: Path) -> None:
    _, out = _ci(tmp_path, "none", GITHUB_STEP_SUMMARY="summary.md")
    assert "--output markdown:summary.md --output github:/dev/stdout" in out


def test_the_comparison_of_make_gates_removals_too() -> None:
    makefile = tree.text("Makefile")
    assert "harness diff-baseline $(RESULTS) --fail-on removed" in makefile
    assert "--results $(RESULTS)" in makefile


def test_ci_run_is_executable() -> None:
    assert os.access(tree.ROOT / ".ci" / "run", os.X_OK)
