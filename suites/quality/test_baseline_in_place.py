"""On a copy of a few of these suites: break a property, delete a test, rename one; each is seen by its name."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness import cli
from suites.repo import tree

COPIED = ["harness", "suites/__init__.py", "suites/harness/__init__.py", "suites/harness/test_verdict.py"]
SUITE = "suites/harness/test_verdict.py"
HOLDS = f"{SUITE}::test_constructors_give_their_outcome"


@pytest.fixture(scope="module")
def main(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small copy of this tree with a recorded baseline."""
    made = tmp_path_factory.mktemp("main")
    for name in COPIED:
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        if (tree.ROOT / name).is_dir():
            shutil.copytree(tree.ROOT / name, made / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(tree.ROOT / name, made / name)
    (made / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\npythonpath = .\n")
    _run(made)
    recorded = ["record-baseline", str(made / "results.jsonl"), "--to", str(made / "baselines" / "copy")]
    assert cli.run_cli([*recorded, "--reason", "main", "--key", "copy"]) == 0
    return made


@pytest.fixture
def project(main: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that copy, and the working folder in it."""
    shutil.copytree(main, tmp_path / "branch", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path / "branch")
    return tmp_path / "branch"


def _run(project: Path) -> None:
    command = [sys.executable, "-m", "pytest", "suites", "-p", "harness.pytest_results", "--results", "results.jsonl"]
    # Not this process's own search path: the copy of the harness is the one to be tried.
    subprocess.run([*command, "-p", "no:cacheprovider"], cwd=project, capture_output=True, check=False)


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def _diff(project: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    _run(project)
    capsys.readouterr()
    code = cli.run_cli(["diff-baseline", "results.jsonl", "--key", "copy", "--fail-on", "removed"])
    return code, capsys.readouterr().out


def test_nothing_changed_gives_0(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = _diff(project, capsys)
    assert (code, out.splitlines()[0]) == (0, "0 regressions")


def test_a_broken_property_gives_1_and_its_name(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _edit(project / "harness" / "verdict.py", '"reason": self.reason', '"reason": "lost"')
    code, out = _diff(project, capsys)
    assert (code, out.splitlines()[0]) == (1, "4 regressions")
    assert f"    pytest '{SUITE}::test_json_goes_both_ways[verdict0]'\n" in out


def test_a_deleted_test_gives_1_and_its_name(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _edit(project / SUITE, "def test_constructors_give_their_outcome", "def _constructors_give_their_outcome")
    code, out = _diff(project, capsys)
    assert (code, out.splitlines()[0]) == (1, "0 regressions, 1 removed")
    assert f"  {HOLDS}\n" in out


def test_a_renamed_test_is_told_and_gives_0(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _edit(project / SUITE, "def test_constructors_give_their_outcome", "def test_constructors_give_the_outcome")
    code, out = _diff(project, capsys)
    assert (code, out.splitlines()[0]) == (0, "0 regressions, 1 renamed?")
    assert f"  {HOLDS}\n    now {SUITE}::test_constructors_give_the_outcome?\n" in out
