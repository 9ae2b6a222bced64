"""The `v4model` command: what it prints, how it ends, and that bad input is one sentence."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from v4model import cli

ANSWERS = ["x" * 40, "y" * 9, "z" * 100, "short"]
FAST = ["--tokenizer", "bytes"]


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture(autouse=True)
def no_handlers_left() -> Iterator[None]:
    before = list(logging.getLogger().handlers)
    yield
    logging.getLogger().handlers[:] = before


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "data.json", *ANSWERS)


def write(path: Path, *answers: str) -> Path:
    path.write_text(json.dumps([{"instruction": "Say.", "input": "", "output": answer} for answer in answers]))
    return path


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys; from v4model.cli import run_cli; run_cli(['data', 'stats', '--help']); sys.exit({names})"
    names = "bool({'torch', 'matplotlib', 'tokenizers'} & sys.modules.keys())"
    run = subprocess.run(
        [sys.executable, "-c", code.format(names=names)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0
    assert "--window" in run.stdout


def test_stats_print_tables_that_fit(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["data", "stats", str(corpus), "--window", "128,4096", *FAST]) == 0
    printed = capsys.readouterr().out
    assert all(len(line) <= 80 for line in printed.splitlines())
    for said in ("Packs", "Tokens", "Without a complete", "padded and packed", "best fit (THD)", "nothing truncated"):
        assert said in printed


def test_stats_as_json_add_up(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["data", "stats", str(corpus), "--window", "128,4096", "--json", *FAST]) == 0
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert content["schema"] == cli.SCHEMA
    assert [recipe["window"] for recipe in content["recipes"]] == [128, 4096]
    for one in content["stats"]:
        assert one["total_tokens"] == one["real_tokens"] + one["alignment_tokens"] + one["padding_tokens"]
        assert sum(one["samples_per_pack"]) == len(ANSWERS)
        assert [found["ratio"] for found in one["without_window"]] == [4, 128]


def test_a_picture_and_a_cache_are_written(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--picture", str(tmp_path / "p.svg"), "--cache", str(tmp_path / "cache")]
    printed = []
    for _ in range(2):
        assert cli.run_cli(["data", "stats", str(corpus), *options, *FAST]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert (tmp_path / "p.svg").stat().st_size > 0
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_folder_that_cannot_be_written_is_said(
    corpus: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert cli.run_cli(["data", "stats", str(corpus), "--cache", str(corpus / "cache"), *FAST]) == 0
    assert "cannot write to the cache" in caplog.text
    assert "Packs" in capsys.readouterr().out


def test_inspect_shows_labels_and_boundaries(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["data", "inspect", str(corpus), "--window", "256", "--mode", "sequential", *FAST]) == 0
    printed = capsys.readouterr().out
    assert all(len(line) <= 80 for line in printed.splitlines())
    assert "cu_seqlens 0, 49, 67, 176, 190" in printed
    assert "padding: tokens [190, 256)" in printed
    rows = [line.split() for line in printed.splitlines() if line.split()[:1] in (["47"], ["48"])]
    assert rows == [
        ["47", "47", "120", "x", "yes", "257", "<\uff5cend\u2581of\u2581sente…", "yes"],
        ["48", "48", "257", "<\uff5cend\u2581of\u2581sente…", "yes", "-", "-"],
    ]


@pytest.mark.parametrize("command", ["stats", "inspect"])
@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ('{"a": 1}', [], "got an object with keys 'a'; expected a JSON list"),
        ('[{"question": "a", "answer": "b"}]', [], "got keys 'question', 'answer'; expected a key 'instruction'"),
        ("", [], "got an empty file; expected at least one record"),
        ('[{"instruction": "a", "input": "", "output": ""}]', [], "record 1 of 1, key 'output'"),
        (None, ["--window", "64"], "got a sample of 109 tokens; expected at most the window's 64"),
        (None, ["--align", "3"], "got window 4096 with align 3"),
        (None, ["--mode", "best"], "got mode 'best'; expected one of best-fit, sequential, padded"),
        (None, ["--too-long", "cut"], "got too_long 'cut'"),
        (None, ["--tokenizer", "absent.json"], "got a file that cannot be read"),
        (None, ["--nothing"], "No such option: --nothing"),
    ],
)
def test_bad_input_is_one_sentence_and_2(
    tmp_path: Path,
    corpus: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
    content: str | None,
    options: list[str],
    said: str,
) -> None:
    path = corpus
    if content is not None:
        path = tmp_path / "bad.json"
        path.write_text(content)
    assert cli.run_cli(["data", command, str(path), *FAST, *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("v4model: ")
    assert said in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stats", "--window", "4096,x"], "got 4096,x; expected numbers of tokens"),
        (["stats", "--preset", "huge"], "got preset 'huge'; expected one of tiny, three_kinds, flash, pro"),
        (["inspect", "--tokens", "5"], "got 5; expected two numbers"),
        (["inspect", "--pack", "9"], "got pack 9; expected 0 to 0"),
    ],
)
def test_bad_options_are_refused(
    corpus: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert cli.run_cli(["data", arguments[0], str(corpus), *arguments[1:], *FAST]) == 2
    assert said in capsys.readouterr().err


def test_records_without_an_answer_can_be_dropped_and_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "data.json", *ANSWERS, "", " ")
    assert cli.run_cli(["data", "stats", str(path), "--unsupervised", "drop", *FAST]) == 0
    assert "dropped 2 samples in which nothing is learned" in " ".join(capsys.readouterr().out.split())
    assert "dropped 2 samples" in caplog.text


@pytest.mark.parametrize("arguments", [[], ["data"]])
def test_no_command_prints_the_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(arguments) == 2
    assert "Commands:" in capsys.readouterr().out
