"""The command `harness nightly`, with small stages: killed half-way and resumed, refused, and its exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from harness import cli
from suites.harness.conduct.fake_night import is_gone
from suites.repo import tree

COMMAND = [sys.executable, "-m", "suites.harness.conduct.fake_night", "nightly"]
WHOLE = ["suites 0", "fuzz 0", "fuzz 1", "fuzz 2", "faults 0", "faults 1", "faults 2"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tree.ROOT))


def nightly(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, "--jobs", "1", *words], capture_output=True, text=True, check=False, timeout=120)


@contextmanager
def under_way() -> Iterator[subprocess.Popen[str]]:
    """A night whose second step of fuzz is running; the context waits until that is gone."""
    os.mkfifo("here")
    # A shell that starts the tests in the background has them ignore Ctrl-C, which the night would inherit.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [*COMMAND, "--jobs", "1", "--budget", "10m"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    signal.signal(signal.SIGINT, before)
    try:
        with Path("here").open("rb", buffering=0) as pipe:
            assert pipe.read(5) == b"ready"
            yield process
            assert is_gone(pipe.fileno()), "the step outlived its night"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with process:
            Path("here").unlink()


def ran() -> list[str]:
    return Path("ran").read_text(encoding="utf-8").splitlines()


def the_night() -> tuple[Path, dict[str, Any]]:
    (file,) = Path("reports/nights").glob("*/night.json")
    return file.parent, json.loads(file.read_text(encoding="utf-8"))


def test_a_night_leaves_its_record_and_a_page() -> None:
    done = nightly("--budget", "10m", "--seed", "7")
    folder, night = the_night()
    assert done.returncode == 0, done.stderr
    assert ran() == WHOLE
    lines = done.stdout.splitlines()
    assert lines[0] == f"{folder}: seed 7, 10 min left"
    assert [line.split()[0] for line in lines[1:5]] == ["suites", "fuzz", "faults", "bench"]
    assert "left out -" in lines[4]
    assert lines[5].startswith(f"report of {folder} --history reports/nights/history.sqlite --output=html:{folder}/")
    assert (night["schema_version"], night["seed"], night["budget_s"], night["validity"]) == (1, 7, 600.0, "valid")
    assert night["ended"] >= night["started"]
    assert [(stage["name"], stage["status"]) for stage in night["stages"]] == [
        ("suites", "done"),
        ("fuzz", "done"),
        ("faults", "done"),
        ("bench", "left out"),
    ]
    assert done.stderr == ""


def test_a_night_that_is_killed_goes_on_where_it_was() -> None:
    with under_way() as process:
        os.killpg(process.pid, signal.SIGKILL)
    folder, night = the_night()
    assert night["ended"] is None
    assert [(stage["name"], stage["open"], stage["status"]) for stage in night["stages"]] == [
        ("suites", False, "done"),
        ("fuzz", True, "stopped"),
    ]
    done = nightly("--resume")
    assert done.returncode == 0, done.stderr
    assert ran() == [*WHOLE[:3], *WHOLE[2:]], "the step under way runs again, what was done does not"
    _, after = the_night()
    assert after["seed"] == night["seed"]
    assert after["stages"][0] == night["stages"][0]
    assert after["stages"][1]["seconds"] >= night["stages"][1]["seconds"]
    assert f"{folder}: seed {night['seed']}, " in done.stdout


def test_ctrl_c_gives_130_and_a_folder_to_go_on_with() -> None:
    with under_way() as process:
        refused = nightly("--resume")
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    folder, night = the_night()
    assert process.returncode == 130
    assert err == f"harness: interrupted; harness nightly --resume {folder} goes on\n"
    assert refused.returncode == 2
    assert refused.stderr == f"harness: got a night that is being run; expected one at a time; where: {folder}\n"
    assert night["ended"] is None
    assert nightly("--resume", str(folder)).returncode == 0
    assert ran() == [*WHOLE[:3], *WHOLE[2:]]


@pytest.mark.parametrize(("code", "expected"), [(1, 1), (3, 0), (9, 3)])
def test_the_exit_code_is_that_of_the_stages(code: int, expected: int) -> None:
    Path("codes.json").write_text(json.dumps({"faults 1": code}), encoding="utf-8")
    assert nightly("--budget", "10m").returncode == expected


def test_a_night_that_has_ended_only_gets_its_page_again() -> None:
    nightly("--budget", "10m")
    folder, night = the_night()
    again = nightly("--resume", str(folder))
    assert again.returncode == 0
    assert "report of" in again.stdout
    assert ran() == WHOLE
    assert the_night()[1] == night


def test_resuming_at_another_commit_is_refused() -> None:
    folder = Path("reports/nights/20260102T030405")
    folder.mkdir(parents=True)
    stages: list[Any] = []
    record = {"schema_version": 1, "started": "", "seed": 1, "commit": "abc", "dirty": False, "versions": {},
              "device": "cpu", "budget_s": 60.0, "shards": [], "stages": stages}  # fmt: skip
    (folder / "night.json").write_text(json.dumps(record), encoding="utf-8")
    done = nightly("--resume")
    assert done.returncode == 2
    assert "expected abc, the night's own" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--budget", "10"], "expected a time up to a week"),
        (["--resume", "--seed", "1"], "a night keeps its own"),
        (["--resume"], "expected one to resume"),
        (["--resume", "nowhere"], "expected a night of `harness nightly`"),
        (["somewhere"], "--resume before a night's folder"),
    ],
)
def test_wrong_usage_is_one_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["nightly", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1
    assert not list(Path().rglob("night.json"))
