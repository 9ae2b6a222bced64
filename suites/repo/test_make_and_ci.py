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


@pytest.mark.parametrize("target", ["verify", "test", "lint"])
def test_a_second_run_does_not_install(installed: Path, target: str) -> None:
    assert "pip install" not in _planned(installed, target)


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
@pytest.mark.parametrize("target", ["verify", "test", "lint"])
def test_changed_requirements_are_installed_first(installed: Path, target: str, changed: str) -> None:
    os.utime(installed / changed, (3_000, 3_000))
    assert "pip install" in _planned(installed, target)


@pytest.mark.parametrize("target", ["verify", "test", "lint"])
def test_a_missing_environment_is_made_first(installed: Path, target: str) -> None:
    shutil.rmtree(installed / ".venv")
    assert "-m venv" in _planned(installed, target)


@pytest.mark.parametrize(("broken", "status"), [("none", 0), ("lint", 1), ("test", 1)])
def test_ci_runs_every_step_and_reports_the_failed_one(tmp_path: Path, broken: str, status: int) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(tree.ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    fake = tmp_path / "bin" / "make"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\ncase " $* " in *" {broken} "*) exit 2;; esac\n')
    fake.chmod(0o755)
    environment = {"PATH": f"{fake.parent}:/usr/bin:/bin", "CI": "true"}
    run = subprocess.run(
        [str(tmp_path / ".ci" / "run")], env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    assert run.returncode == status, run.stdout + run.stderr
    outcomes = dict(re.findall(r"^== (lint|test): (passed|FAILED)", run.stdout, re.MULTILINE))
    assert outcomes == {name: "FAILED" if name == broken else "passed" for name in ("lint", "test")}


def test_the_workflow_runs_nothing_but_ci_run() -> None:
    commands = re.findall(r"run: *(.+)", tree.text(".github/workflows/ci.yml"))
    assert commands == [".ci/run"]


def test_ci_run_is_executable() -> None:
    assert os.access(tree.ROOT / ".ci" / "run", os.X_OK)
