"""Workflows call our commands, with few rights, and run code that was looked at."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from suites.repo import tree, workflows

FILES = [path for path in tree.text_files() if path.parent == Path(".github/workflows")]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_workflow_is_sound(path: Path) -> None:
    assert workflows.problems(tree.text(path)) == []


def test_there_is_one_for_changes_and_one_for_nights() -> None:
    assert [path.name for path in FILES] == ["ci.yml", "nightly.yml"]
    on = {path.name: yaml.safe_load(tree.text(path))[True] for path in FILES}
    assert on["ci.yml"] == {"push": {"branches": ["main"]}, "pull_request": None}
    assert set(on["nightly.yml"]) == {"schedule", "workflow_dispatch"}


def test_a_night_leaves_its_folder_and_its_history_whatever_it_gave() -> None:
    steps = yaml.safe_load(tree.text(".github/workflows/nightly.yml"))["jobs"]["night"]["steps"]
    used = [step.get("uses", step.get("run", "")).partition("@")[0] for step in steps]
    run, save, upload = used.index('.ci/nightly "$BUDGET"'), used.index("actions/cache/save"), len(used) - 1
    restore = used.index("actions/cache/restore")
    assert restore < run < save < upload
    assert [steps[number].get("if") for number in (save, upload)] == ["always()", "always()"]
    assert steps[restore]["with"]["path"] == steps[save]["with"]["path"] == "reports/nights/history.sqlite"
    assert steps[restore]["with"]["key"] == steps[save]["with"]["key"]
    assert steps[save]["with"]["key"].startswith(steps[restore]["with"]["restore-keys"])
    assert (used[upload], steps[upload]["with"]["path"]) == ("actions/upload-artifact", "reports/nights/")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  pull_request:", "  pull_request_target:", "trigger pull_request_target"),
        ("@11bd71901bbe5b1630ceea73d27597364c9af683 # v4.2.2", "@v4", "no full hash and version: actions/checkout@v4"),
        (" # v5.6.0", "", "no full hash and version: actions/setup-python@a26af69be951a213d495a4c3e4e4022e16d87065"),
        ("contents: read", "contents: write", "permissions {'contents': 'write'}"),
        ("permissions:\n  contents: read\n", "", "permissions None"),
        ("    timeout-minutes: 30\n", "", "job ci: no timeout-minutes"),
        ("run: .ci/run", "run: pytest ${{ github.head_ref }}", "job ci: runs pytest ${{ github.head_ref }}"),
        ("persist-credentials: false", "fetch-depth: 1", "job ci: a checkout that keeps its credentials"),
    ],
)
def test_what_is_wrong_is_found(old: str, new: str, said: str) -> None:
    sound = tree.text(".github/workflows/ci.yml")
    assert sound.count(old) == 1
    assert workflows.problems(sound.replace(old, new)) == [said]


PAGE = "mkdir -p reports/nights/20260102T030405; echo the page > reports/nights/20260102T030405/page.md"


@pytest.mark.parametrize("status", [0, 1, 3])
@pytest.mark.parametrize(("leaves", "told"), [(PAGE, "the page\n"), ("", "")], ids=["page", "no page"])
def test_the_night_of_ci_gives_the_status_of_the_command(tmp_path: Path, status: int, leaves: str, told: str) -> None:
    for name, text in ((".ci/nightly", tree.text(".ci/nightly")), ("bin/make", _fake("make", "exit 0")),
                       (".venv/bin/harness", _fake("harness", f"{leaves}\nexit {status}"))):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    summary = tmp_path / "summary.md"
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "GITHUB_STEP_SUMMARY": str(summary)}
    command = [str(tmp_path / ".ci" / "nightly"), "10m"]
    run = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)
    assert run.returncode == status
    assert run.stdout.splitlines()[:2] == ["make --no-print-directory .venv/.installed", "harness nightly --budget 10m"]
    assert summary.read_text(encoding="utf-8") == told
    assert ("no page for the summary" in run.stdout) is (not told)


def _fake(name: str, then: str) -> str:
    return f'#!/bin/sh\necho "{name} $*"\n{then}\n'


def test_the_night_of_ci_is_executable() -> None:
    assert os.access(tree.ROOT / ".ci" / "nightly", os.X_OK)
