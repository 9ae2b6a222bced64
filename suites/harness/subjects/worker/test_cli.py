"""Workers from the command line: a line or a file names one, and its troubles are verdicts or bad input."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness import cli
from suites.harness.subjects import toy
from suites.repo import tree

TOKEN = "all,balance_coef=0.0,index_kl_coef=0.0/5.9/s1"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Names a worker of the leaking toy."""
    path = tmp_path / "leaking.toml"
    path.write_text(
        f'python = "{sys.executable}"\nfactory = "{toy.__name__}:Leaking"\npath = ["{tree.ROOT}"]\n', encoding="utf-8"
    )
    return path


def replayed(subject: str) -> int:
    """The exit code of one case on one property."""
    return cli.run_cli(["replay", TOKEN, "--subject", subject, "--only", "packed_equals_alone"])


def test_a_file_is_a_subject(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replayed(str(file)) == 1
    assert "VIOLATED  packed_equals_alone" in capsys.readouterr().out


def test_a_line_is_a_subject(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tree.ROOT)  # the caller's folder is on the worker's path
    assert replayed(f"worker:{sys.executable}:{toy.__name__}:Toy") == 0
    assert "HOLDS     packed_equals_alone" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("factory", "words"), [("Dying", "it last printed: CUDA error"), ("Raising", "ValueError: mat1 and mat2 shapes")]
)
def test_trouble_in_a_worker_is_undecided(
    factory: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tree.ROOT)
    assert replayed(f"worker:{sys.executable}:{toy.__name__}:{factory}") == 3
    printed = capsys.readouterr().out
    assert printed.splitlines()[1].startswith("UNDECIDED packed_equals_alone: WorkerFailure: ")
    assert words in printed


def test_a_run_in_several_processes_has_a_worker_in_each(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "--subject", str(file), "--only", "query_sees_no_future", "--jobs", "2"]
    assert cli.run_cli([*command, "--output", str(tmp_path / "out")]) == 3  # something is left out
    assert "1 of 1 properties hold; not asked, because unsupported" in " ".join(capsys.readouterr().out.split())


def test_the_check_up_asks_a_worker_too(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["check-subject", str(file)]) == 0
    assert "ok       name: leaking toy" in capsys.readouterr().out
