"""The worked example of the README is an adapter that works, and what the README shows of it is what is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness import cli
from harness.subjects.support import ASPECTS
from suites.repo import documents, tree

README = tree.text("harness/subjects/README.md")
BLOCKS = documents.blocks(README)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The subject's name, importable."""
    (code,) = [content for language, content in BLOCKS if language == "python"]
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return "mine:Mine"


def test_the_example_passes_its_check_up(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["check-subject", example]) == 0
    printed = capsys.readouterr().out
    (shown,) = [content for language, content in BLOCKS if language == "text" and "check-subject" in content]
    command, *parts = re.split(r"\n(?:\.\.\.\n)?", shown.strip())
    assert command == f"$ harness check-subject {example}"
    assert [line for line in parts if line not in printed.splitlines()] == []


def test_the_example_holds_and_says_what_it_leaves_out(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["query_sees_only_its_sample", "packed_equals_alone", "query_sees_no_future", "labels_stay_inside"]
    only = [word for name in names for word in ("--only", name)]
    assert cli.run_cli(["run", "--subject", example, "--jobs", "1", "--output", "out", *only]) == 3
    printed = " ".join(capsys.readouterr().out.split())
    assert "UNDECIDED: 4 of 4 properties hold; not asked, because unsupported: MTP depths (it predicts one" in printed


def test_the_example_without_its_mask_is_caught(
    example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "leaking.py"
    code = (tmp_path / "mine.py").read_text(encoding="utf-8")
    file.write_text(code.replace("(position_ids == 0).cumsum(1)", "torch.zeros_like(position_ids)"), encoding="utf-8")
    name = example.replace("mine", "leaking")
    command = ["run", "--subject", name, "--jobs", "1", "--output", "out", "--only", "query_sees_only_its_sample"]
    assert cli.run_cli(command) == 1
    assert "read sample 0, position 0 (token 0)" in capsys.readouterr().out


def test_every_aspect_is_documented() -> None:
    assert [name for name in ASPECTS if f"`{name}`" not in README] == []
