"""The plugin that writes a JSON line a test, in a pytest of its own: serial, under xdist, killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.baseline.reading import read_run
from suites.repo import tree

TESTS = """
import os, pytest

def test_passes(): pass

def test_fails():
    assert 1 == 2

def test_exits():
    if os.path.exists("exit"):
        os._exit(0)
"""


def run(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """Run pytest with the plugin in the folder and read what it left."""
    (folder / "test_them.py").write_text(TESTS, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "harness.pytest_results", "--results", "out/run.jsonl"]
    environment = {"PYTHONPATH": str(tree.ROOT), "PATH": "/usr/bin:/bin"}
    subprocess.run([*command, *arguments], cwd=folder, env=environment, capture_output=True, check=False)
    return [json.loads(line) for line in (folder / "out" / "run.jsonl").read_text(encoding="utf-8").splitlines()]


def kinds(lines: list[dict[str, Any]]) -> list[str]:
    return [line["kind"] for line in lines]


@pytest.mark.parametrize("arguments", [[], ["-n", "2"]], ids=["serial", "xdist"])
def test_a_whole_run_has_a_header_its_ids_its_tests_and_a_footer(arguments: list[str], tmp_path: Path) -> None:
    lines = run(tmp_path, *arguments)
    assert kinds(lines) == ["header", "collected", "test", "test", "test", "footer"]
    assert lines[0]["selection"] == {"arguments": ["."]}
    assert lines[0]["facts"] == {"pytest": pytest.__version__}
    assert lines[1]["ids"] == [f"test_them.py::test_{name}" for name in ("passes", "fails", "exits")]
    entries = {line["nodeid"]: line["entries"] for line in lines[2:5]}
    failure = {"tag": "failure", "type": "", "message": "assert 1 == 2"}
    assert entries == {identity: [failure] if "fails" in identity else [] for identity in lines[1]["ids"]}
    assert (lines[-1]["exit_code"], lines[-1]["tests"]) == (1, 3)


def test_a_run_that_is_cut_off_keeps_what_was_done_and_has_no_footer(tmp_path: Path) -> None:
    (tmp_path / "exit").touch()
    assert kinds(run(tmp_path)) == ["header", "collected", "test", "test"]


def test_a_stale_file_is_gone_before_anything_is_collected(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "conftest.py").write_text("def pytest_collection(): import os; os._exit(3)\n", encoding="utf-8")
    assert kinds(run(tmp_path)) == ["header"]


def test_what_was_asked_for_is_part_of_the_header(tmp_path: Path) -> None:
    lines = run(tmp_path, "test_them.py::test_passes", "-k", "pass", "-m", "not slow", "--deselect", "a")
    assert lines[0]["selection"] == {
        "arguments": ["test_them.py::test_passes"],
        "-k": "pass",
        "-m": "not slow",
        "--deselect": ["a"],
    }
    run(tmp_path)
    assert run(tmp_path, "--lf")[0]["selection"] == {"arguments": ["."], "--last-failed": True}


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "harness.pytest_results", "--results", "/dev/null/run.jsonl"]
    environment = {"PYTHONPATH": str(tree.ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "expected a file to write; where: --results /dev/null/run.jsonl" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_conftest_says_the_facts(tmp_path: Path) -> None:
    text = "def pytest_results_facts(config): return {'device': 'cpu', 'seed': '7'}\n"
    (tmp_path / "conftest.py").write_text(text, encoding="utf-8")
    assert run(tmp_path)[0]["facts"] == {"device": "cpu", "seed": "7", "pytest": pytest.__version__}


def test_these_suites_say_theirs(pytestconfig: pytest.Config) -> None:
    facts = pytestconfig.hook.pytest_results_facts(config=pytestconfig)
    assert list(facts) == "device dtype torch python megatron-core profile gates hypothesis seed".split()
    assert all(facts.values())
    assert "+" not in facts["torch"]


@pytest.mark.parametrize("arguments", [[], ["-n", "2"]], ids=["serial", "xdist"])
def test_a_run_that_was_cut_off_goes_on_with_what_it_has(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "exit").touch()
    cut = run(tmp_path)
    (tmp_path / "exit").unlink()
    lines = run(tmp_path, "--results-continue", *arguments)
    assert kinds(lines) == ["header", "test", "test", "collected", "test", "footer"]
    assert lines[1:3] == cut[2:]
    assert sorted(lines[3]["ids"]) == sorted(f"test_them.py::test_{name}" for name in ("passes", "fails", "exits"))
    assert lines[4]["nodeid"] == "test_them.py::test_exits"
    # pytest ran one test, which passed; one of those that are kept did not.
    assert (lines[-1]["exit_code"], lines[-1]["tests"]) == (1, 3)
    assert not read_run([str(tmp_path / "out" / "run.jsonl")]).problems


@pytest.mark.parametrize("arguments", [[], ["-n", "2"]], ids=["serial", "xdist"])
def test_nothing_is_run_again_where_every_test_has_a_result(arguments: list[str], tmp_path: Path) -> None:
    whole = run(tmp_path)
    again = run(tmp_path, "--results-continue", *arguments)
    assert kinds(again) == ["header", "test", "test", "test", "collected", "footer"]
    assert again[1:4] == whole[2:5]
    assert again[-1]["exit_code"] == 1
    assert not read_run([str(tmp_path / "out" / "run.jsonl")]).problems


def test_an_id_that_others_begin_with_does_not_take_them_along(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    first = run(tmp_path, "test_them.py::test_passes")
    (tmp_path / "test_more.py").write_text("def test_p(): pass\ndef test_passes_too(): pass\n", encoding="utf-8")
    first[0]["selection"] = {"arguments": ["."]}
    kept = [first[0], {**first[2], "nodeid": "test_more.py::test_p"}]
    text = "".join(json.dumps(line) + "\n" for line in kept)
    (tmp_path / "out" / "run.jsonl").write_text(text + '{"kind": "te', encoding="utf-8")
    ran = [line["nodeid"] for line in run(tmp_path, "--results-continue", "-k", "")[2:] if line["kind"] == "test"]
    assert "test_more.py::test_passes_too" in ran
    assert "test_more.py::test_p" not in ran


def test_results_of_other_tests_are_not_gone_on_with(tmp_path: Path) -> None:
    before = run(tmp_path, "test_them.py::test_passes")
    command = [sys.executable, "-m", "pytest", "-p", "harness.pytest_results", "--results", "out/run.jsonl"]
    environment = {"PYTHONPATH": str(tree.ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [*command, "--results-continue"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    assert "as before; where: --results-continue" in done.stderr
    left = (tmp_path / "out" / "run.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in left] == before
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["run.jsonl"]
