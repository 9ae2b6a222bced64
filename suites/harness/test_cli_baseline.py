"""`harness diff-baseline` and `harness record-baseline`: exit codes, files, one sentence for bad input, speed."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness import cli
from suites.harness.baseline import corpus
from suites.harness.baseline.made import Outcome, case_xml, write_xml
from suites.harness.startup import assert_at_once
from suites.repo import tree

BASE = corpus.junit("base")


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def _diff(*arguments: str) -> int:
    return cli.run_cli(["diff-baseline", *arguments])


def _record(*arguments: str, reason: str = "because") -> int:
    return cli.run_cli(["record-baseline", *arguments, "--reason", reason])


@pytest.mark.parametrize("command", ["diff-baseline", "record-baseline"])
def test_help_answers_at_once_and_imports_nothing_heavy(command: str) -> None:
    heavy = "{'torch', 'hypothesis', 'numpy', 'jinja2', 'pytest'}"
    code = f"import sys; from harness.cli import run_cli; run_cli(['{command}', '--help']); "
    code += f"sys.exit(' '.join({heavy} & sys.modules.keys()) or 0)"

    def run() -> None:
        done = subprocess.run([sys.executable, "-c", code], cwd=tree.ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "Exit codes: 0 nothing gates" in " ".join(done.stdout.split())

    assert_at_once(run)


def test_a_run_is_recorded_compared_and_blessed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert _record(BASE, "--key", "theirs") == 0
    assert "Recorded in baselines/theirs." in capsys.readouterr().out
    assert _diff(BASE, "--key", "theirs") == 0
    assert capsys.readouterr().out.startswith("0 regressions, 2 still failing\n")
    exchanged = corpus.junit("one_exchanged")
    assert _diff(exchanged, "--key", "theirs") == 1
    out = capsys.readouterr().out
    assert "    pytest 'test_alpha.py::test_number[13]'\n" in out
    assert out.endswith(f"  harness record-baseline {exchanged} --to baselines/theirs --reason '...'\n")
    assert _record(exchanged, "--key", "theirs", "--issue", "#13", reason="13 is unlucky") == 0
    out = capsys.readouterr().out
    assert "1 regression, 1 fixed, 1 still failing" in " ".join(out.split())
    assert _diff(exchanged, "--key", "theirs") == 0
    lines = (tmp_path / "baselines" / "theirs" / "exceptions.txt").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if "test_number[13]" in line]
    assert line.split("\t")[3:5] == ["13 is unlucky", "#13"]


def test_to_names_the_folder_and_blessing_twice_changes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert _record(BASE, "--to", "deep/main") == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "deep" / "main").iterdir()}
    capsys.readouterr()
    assert _record(BASE, "--to", "deep/main", reason="again") == 0
    assert "Nothing to record: deep/main says this already." in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in (tmp_path / "deep" / "main").iterdir()} == before
    assert _diff(BASE, "--baseline", "deep/main") == 0


@pytest.mark.parametrize("name", ["ten_crashes_n2", "collection_error_n2", "gated", "sigint", "timeout", "no_tests"])
def test_what_is_no_baseline_is_not_recorded(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert _record(corpus.junit(name), "--to", "main") == 3
    out, err = capsys.readouterr()
    assert out.startswith("Nothing can be decided:")
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "main").exists()


def test_a_killed_run_is_not_recorded(tmp_path: Path) -> None:
    assert _record(corpus.lines("sigterm"), "--to", "main") == 3
    assert not (tmp_path / "main").exists()


def test_removals_gate_by_option_and_pure_renames_do_not() -> None:
    assert _diff(corpus.junit("one_removed"), "--baseline", BASE) == 0
    assert _diff(corpus.junit("one_removed"), "--baseline", BASE, "--fail-on", "removed") == 1
    assert _diff(corpus.lines("tests_renamed"), "--baseline", corpus.lines("base"), "--fail-on", "removed") == 0
    renamed = corpus.lines("tests_renamed")
    assert _diff(renamed, "--baseline", corpus.lines("base"), "--fail-on", "removed,renamed") == 1


def test_outputs_are_written_beside_what_is_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    names = {"text": "a.txt", "json": "a.json", "markdown": "a.md", "html": "a.html", "github": "a.log"}
    options = [word for name, file in names.items() for word in ("--output", f"{name}:{file}")]
    assert _diff(corpus.junit("one_broken"), "--baseline", BASE, "--format", "json", *options) == 1
    assert capsys.readouterr().out == (tmp_path / "a.json").read_text(encoding="utf-8")
    for file in names.values():
        assert "1 regression, 2 still failing" in (tmp_path / file).read_text(encoding="utf-8")


def test_a_second_run_of_the_regressions_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert _diff(corpus.junit("one_broken"), "--baseline", BASE, "--rerun", BASE) == 1
    assert "run again: pass; flaky?" in capsys.readouterr().out


def test_the_key_comes_from_the_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = Path(corpus.lines("base")).read_text(encoding="utf-8").splitlines()
    facts = {"device": "cpu", "torch": "2.13.0", "profile": "quick"}
    for torch in ("2.13.0", "2.11.0"):
        header = json.loads(lines[0]) | {"facts": facts | {"torch": torch}}
        (tmp_path / f"{torch}.jsonl").write_text("\n".join([json.dumps(header), *lines[1:]]), encoding="utf-8")
    assert _record("2.13.0.jsonl") == 0
    assert (tmp_path / "baselines" / "cpu-torch2.13.0-quick").is_dir()
    assert _diff("2.13.0.jsonl") == 0
    capsys.readouterr()
    assert _diff("2.11.0.jsonl") == 3
    assert "got no baseline baselines/cpu-torch2.11.0-quick; expected a recorded one" in capsys.readouterr().err
    assert _diff("2.11.0.jsonl", "--baseline", "baselines/cpu-torch2.13.0-quick") == 3
    assert "torch 2.11.0, was 2.13.0" in capsys.readouterr().out


@pytest.mark.parametrize("run", ["runs/sigterm/junit.xml", "runs/sigterm/results.jsonl", "foreign/prose.xml"])
def test_a_run_that_cannot_be_read_says_so_before_it_is_asked_for_its_key(
    run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _diff(str(corpus.RUNS.parent / run)) == 3
    out, err = capsys.readouterr()
    assert out.startswith("Nothing can be decided:")
    assert err == ""


def test_a_part_of_the_files_is_no_run() -> None:
    assert _diff(BASE, "--baseline", BASE, "--shards", "1") == 0
    assert _diff(BASE, "--baseline", BASE, "--shards", "2") == 3


def test_compressed_files_and_folders_are_read(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "junit.xml.gz").write_bytes(gzip.compress(Path(BASE).read_bytes()))
    assert _diff("run", "--baseline", BASE) == 0
    assert _diff("run/*.gz", "--baseline", BASE) == 0


USAGE = [
    ([], "RUN"),
    ([BASE], "got a run that does not say its configuration; expected --key NAME"),
    ([BASE, "--baseline", "nowhere"], "got --baseline nowhere"),
    ([BASE, "--key", "a/b"], "got --key 'a/b'"),
    ([BASE, "--baseline", BASE, "--format", "pdf"], "one of text, json, markdown, html, github"),
    ([BASE, "--baseline", BASE, "--output", "markdown"], "FORMAT:PATH"),
    ([BASE, "--baseline", BASE, "--output", "pdf:a.pdf"], "format 'pdf'"),
    ([BASE, "--baseline", BASE, "--output", "text:no/such/folder/a"], "a file to write"),
    ([BASE, "--baseline", BASE, "--fail-on", "removd"], "got --fail-on removd; expected some of regression"),
    ([BASE, "--baseline", BASE, "--shards", "0"], "--shards"),
    ([BASE, "--baseline", BASE, "--show", "x"], "--show"),
    ([BASE, "--baseline", BASE, "--max-missing", "101"], "--max-missing"),
    ([BASE, "--baseline", BASE, "--max-missing", "nan"], "--max-missing"),
]


@pytest.mark.parametrize(("arguments", "words"), USAGE, ids=lambda value: None if isinstance(value, list) else value)
def test_bad_input_is_one_sentence_and_2(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _diff(*arguments) == 2
    err = capsys.readouterr().err
    assert words in err
    assert len(err.splitlines()) == 1
    assert err.startswith("harness: ")


def test_a_reason_is_wanted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.run_cli(["record-baseline", BASE, "--to", "main"]) == 2
    assert "--reason" in capsys.readouterr().err
    assert _record(BASE, "--to", "main", reason="  ") == 2
    assert not (tmp_path / "main").exists()


def test_a_damaged_or_missing_baseline_is_one_sentence_and_3(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert _record(BASE, "--to", "main") == 0
    shutil.copy(tmp_path / "main" / "tests.txt", tmp_path / "main" / "exceptions.txt")
    capsys.readouterr()
    for arguments in (["--baseline", "main"], ["--key", "unheard-of"], ["--baseline", corpus.junit("sigint")]):
        assert _diff(BASE, *arguments) == 3
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 1
    assert _record(BASE, "--to", "main") == 3


def test_a_terminal_that_knows_no_unicode_is_no_reason_to_stop(tmp_path: Path) -> None:
    write_xml(tmp_path / "run.xml", case_xml("test[\U0001f600]", Outcome.FAIL), *(case_xml(f"t{n}") for n in range(9)))
    code = "import sys; from harness.cli import main; main()"
    command = [sys.executable, "-c", code, "diff-baseline", "run.xml", "--baseline", "run.xml"]
    environment = {"PYTHONIOENCODING": "ascii", "PYTHONPATH": str(tree.ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\U0001f600" in done.stdout


def test_many_tests_take_bounded_time_and_memory(tmp_path: Path) -> None:
    cases = [
        case_xml(
            f"test_case_{n % 50}[parameter-{n}]",
            *([Outcome.FAIL] if n % 20 == 0 else []),
            classname=f"suites.part{n // 50 % 40}.test_m{n // 50}.TestC{n % 3}",
            file=f"suites/part{n // 50 % 40}/test_m{n // 50}.py",
        )
        for n in range(25_000)
    ]
    write_xml(tmp_path / "base.xml", *cases)
    broken = cases[1].replace("></testcase>", "><failure/></testcase>")
    write_xml(tmp_path / "new.xml", cases[0], broken, *cases[3:])
    assert _record("base.xml", "--to", "main", "--show", "1") == 0
    code = (
        "import pathlib, re, time; from harness.cli import run_cli; "
        "code = run_cli(['diff-baseline', 'new.xml', '--baseline', 'main']); "
        # Not getrusage's maximum, which begins with that of the process this one was forked from.
        "highest = re.search('VmHWM:[ \t]*([0-9]+)', pathlib.Path('/proc/self/status').read_text())[1]; "
        "print(code, time.process_time(), highest)"
    )
    command = [sys.executable, "-c", code]
    environment = {"PYTHONPATH": str(tree.ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    code_seconds_kib = done.stdout.splitlines()[-1].split()
    assert code_seconds_kib[0] == "1"
    assert int(code_seconds_kib[2]) < 100 * 1024
    # A quarter of the tests that may take 2 s on an idle machine, and 0.25 s to start; a busy one takes twice as long.
    assert float(code_seconds_kib[1]) < 2 * (2 / 4 + 0.25)
