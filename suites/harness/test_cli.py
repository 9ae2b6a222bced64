"""The command line: exit codes, one sentence for bad input, replay in another process."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from harness import cli
from harness.catalogue import properties
from suites.harness import fakes
from suites.harness.startup import assert_at_once

HEALTHY = ["--subject", fakes.named("healthy"), "--only", fakes.named("ALONE"), "--jobs", "1"]
LEAKING = ["--subject", fakes.named("leaking"), "--only", fakes.named("ALONE"), "--jobs", "1"]


@pytest.fixture(autouse=True)
def _small_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The fake corpus instead of the tokenizer and real text, and a folder for reports."""
    monkeypatch.setattr("harness.corpus.builtin_corpus", fakes.corpus)
    monkeypatch.chdir(tmp_path)


def test_help_answers_at_once() -> None:
    code = "import sys; from harness.cli import run_cli; run_cli(['--help']); sys.exit('torch' in sys.modules)"

    def run() -> None:
        done = subprocess.run(
            [sys.executable, "-c", code], env=_environment(), capture_output=True, text=True, check=True
        )
        for word in ("run", "replay", "list", "Exit codes"):
            assert word in done.stdout

    assert_at_once(run)


@pytest.mark.parametrize("command", ["run", "replay", "explain", "list", "faults"])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli([command, "--help"]) == 0
    assert f"harness {command}" in capsys.readouterr().out


def test_a_healthy_run_prints_its_table_and_gives_0(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.run_cli(["run", *HEALTHY]) == 0
    out = capsys.readouterr().out
    assert "HOLDS: 1 of 1 properties hold" in out
    assert "text: fake" in out
    (folder,) = (tmp_path / "reports").iterdir()
    assert folder.name.endswith("-quick")
    assert {path.name for path in folder.iterdir()} == {"results.jsonl", "report.json", "junit.xml"}


def test_a_violated_run_gives_1_and_a_command_that_gives_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["run", *LEAKING, "--output", "out"]) == 1
    lines = capsys.readouterr().out.splitlines()
    (command,) = [line.split() for line in lines if line.startswith("  harness replay all/")]
    (sentence,) = [line.partition(": ")[2] for line in lines if line.startswith("VIOLATED on all: ")]
    assert cli.run_cli(command[1:]) == 1
    replayed = capsys.readouterr().out
    assert sentence in replayed
    assert cli.run_cli([*command[1:-1], fakes.named("healthy")]) == 0
    assert "HOLDS" in capsys.readouterr().out


def test_a_case_file_replays_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.run_cli(["run", *LEAKING, "--output", "out"]) == 1
    file = next((tmp_path / "out").glob("case-*-csa.json"))
    capsys.readouterr()
    assert cli.run_cli(["replay", str(file), *LEAKING[:4]]) == 1
    assert capsys.readouterr().out.startswith("csa/1.1/s0 on ")


def test_json_is_all_that_json_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["run", *LEAKING, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["schema_version"], data["outcome"]) == (2, "VIOLATED")


def test_undecided_and_vacuous_runs_give_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["run", "--subject", fakes.named("raising"), *HEALTHY[2:]]) == 3
    assert "MemoryError" in capsys.readouterr().out
    assert cli.run_cli(["run", *HEALTHY, "--only", fakes.named("VACUOUS")]) == 3
    assert cli.run_cli(["replay", "all/5/s1", *HEALTHY[:4]]) == 3
    assert "VACUOUS" in capsys.readouterr().out


def test_a_seed_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["run", *HEALTHY, "--seed", "77", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seed"] == 77


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--subject", "v4modle"], "unknown subject 'v4modle'; expected v4model, perhaps"),
        (["run", "--subject", "no.such.module:build", "--only", fakes.named("ALONE")], "ModuleNotFoundError"),
        (["run", "--subject", "suites.harness.fakes:absent", "--only", fakes.named("ALONE")], "no 'absent'"),
        (["run", "--subject", "suites.harness.broken:build", "--only", fakes.named("ALONE")], "ZeroDivisionError"),
        (["run", "--only", "query_sees_only_its_sampel"], "expected query_sees_only_its_sample, perhaps"),
        (["run", "--only", "alone"], "packed_equals_alone, perhaps"),
        (["run", "--only", "zzz"], "one of "),
        (["run", "--profile", "quik"], "expected quick, perhaps"),
        (["run", *HEALTHY, "--fault", "A999"], "unknown fault 'A999'"),
        (["run", *HEALTHY, "--data", "absent.json"], "absent.json"),
        (["run", *HEALTHY, "--data", "text.txt"], "text.txt"),
        (["run", *HEALTHY, "--output", "file/folder"], "a folder to write to"),
        (["run", "--jobs", "0"], "--jobs"),
        (["run", "--cp", "2,x"], "got --cp 2,x; expected sizes of 1 to 64, such as 1,2,4"),
        (["run", "--cp", "0"], "expected sizes of 1 to 64"),
        (["run", "--cp", "65"], "expected sizes of 1 to 64"),
        (["run", "--cp", ""], "expected sizes of 1 to 64"),
        (["run", "--seed", "x"], "--seed"),
        (["run", "--no-such-option"], "--no-such-option"),
        (["replay"], "TOKEN_OR_FILE"),
        (["replay", "all/5.33.17"], "CONFIG[@RANKS[p]]/LENGTHS"),
        (["replay", "all,no_such=1/5/s1", *HEALTHY[:4]], "field 'no_such'"),
        (["replay", "absent.json"], "a readable case file"),
        (["replay", "file"], "a case as JSON"),
        (["replay", "other.json"], "schema_version"),
        (["replay", "all/5/s1", "--only", "zzz"], "unknown property 'zzz'"),
        (["explode"], "explode"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value).replace("suites.harness.fakes", "fakes"),
)
def test_bad_input_is_one_sentence_and_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not JSON", encoding="utf-8")
    (tmp_path / "other.json").write_text("[1, 2]", encoding="utf-8")
    (tmp_path / "text.txt").write_text("text", encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    assert cli.run_cli(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert len(err.splitlines()) == 1
    assert err.startswith("harness: ")
    assert sorted(tmp_path.iterdir()) == before


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli([]) == 2
    assert "Usage: harness" in capsys.readouterr().out


def test_list_names_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["list"]) == 0
    out = capsys.readouterr().out
    for word in ("query_sees_only_its_sample", "packed_equals_alone", "v4model", "  csa ", "A1", "nightly"):
        assert word in out


def test_a_default_folder_is_never_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_started", lambda: "20260102T030405")
    first, second = cli._folder(None, "quick"), cli._folder(None, "quick")
    assert (first.name, second.name) == ("20260102T030405-quick", "20260102T030405-quick-2")


def test_properties_of_packing_records_are_asked_of_what_packs_them() -> None:
    of_records = {prop.name for prop in properties() if prop.looks_at == "data"}
    assert of_records < set(cli._all_of("v4model"))
    for name in ("healthy", "leaving"):
        assert set(cli._all_of(fakes.named(name))) == {prop.name for prop in properties()} - of_records


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(fakes.__file__).parents[2])}


def test_ctrl_c_gives_130_and_one_sentence(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    command = ["run", "--subject", fakes.named("healthy"), "--only", fakes.named("GATED"), "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", *command, "--output", "out"],
        cwd=tmp_path,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        with (tmp_path / "gate").open(encoding="ascii") as gate:
            worker = Path("/proc", gate.readline().strip(), "status").read_text(encoding="ascii")
            (blocked,) = [int(line.split()[1], 16) for line in worker.splitlines() if line.startswith("SigBlk")]
            assert blocked & 1 << signal.SIGINT - 1, "a worker would print a trace of its own"
            # To the whole group, as a terminal does.
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=30)
            assert select.select([gate], [], [], 20)[0]
            assert gate.read() == ""
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 130
    assert out == ""
    assert err.startswith("harness: interrupted after ")
    assert len(err.splitlines()) == 1
    lines = (tmp_path / "out" / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert all(json.loads(line)["outcome"] == "HOLDS" for line in lines)
