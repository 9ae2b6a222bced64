"""The JSON lines of a run, whole, killed or damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.baseline.reading import read_run
from suites.harness.baseline import corpus


def _lines() -> list[str]:
    return Path(corpus.lines("base")).read_text(encoding="utf-8").splitlines()


def _read(tmp_path: Path, lines: list[str]) -> tuple[int, list[str]]:
    (tmp_path / "run.jsonl").write_text("\n".join(lines), encoding="utf-8")
    run = read_run([str(tmp_path / "run.jsonl")])
    return len(run.results), [problem.sentence.replace(str(tmp_path / "run.jsonl"), "FILE") for problem in run.problems]


def test_a_whole_run_has_no_problem_and_counts_itself() -> None:
    run = read_run([corpus.lines("base")])
    assert run.problems == ()
    assert run.counts_itself
    assert run.selection == "."
    assert run.exit_codes == (1,)


@pytest.mark.parametrize("kept", [2, 3, 20, 43])
def test_a_killed_run_says_how_far_it_came(kept: int, tmp_path: Path) -> None:
    tests, problems = _read(tmp_path, _lines()[:kept])
    assert tests == kept - 2
    assert len(problems) == 1
    assert problems[0].startswith(f"the run did not finish: {kept - 2} of 42 collected tests have a result")


def test_a_line_that_was_cut_while_written_is_a_problem(tmp_path: Path) -> None:
    lines = _lines()[:10]
    tests, problems = _read(tmp_path, [*lines, _lines()[10][:25]])
    assert tests == 8
    assert problems[0].startswith("FILE: line 11 is not one of our plugin's")
    assert problems[1].startswith("the run did not finish: 8 of 42")


DAMAGE: dict[str, Callable[[list[str]], list[str]]] = {
    "a header is missing": lambda lines: lines[1:],
    "another schema": lambda lines: [lines[0].replace('"schema_version": 1', '"schema_version": 9'), *lines[1:]],
    "no JSON": lambda lines: [*lines[:5], "no JSON", *lines[5:]],
    "a list": lambda lines: [*lines[:5], "[1, 2]", *lines[5:]],
    "an unknown kind": lambda lines: [*lines[:5], '{"kind": "odd"}', *lines[5:]],
    "no kind": lambda lines: [*lines[:5], "{}", *lines[5:]],
    "a test without its entries": lambda lines: [*lines[:5], '{"kind": "test", "nodeid": "a"}', *lines[5:]],
    "another program's lines": lambda _: ['{"name": "unit", "outcome": "HOLDS"}'],
    "nested without end": lambda lines: [*lines[:5], "[" * 100_000, *lines[5:]],
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_a_problem_with_its_line(name: str, tmp_path: Path) -> None:
    _, problems = _read(tmp_path, DAMAGE[name](_lines()))
    assert problems[0].startswith("FILE: line ")
    assert "is not one of our plugin's" in problems[0]


def test_an_empty_file_is_a_problem(tmp_path: Path) -> None:
    assert _read(tmp_path, []) == (0, ["FILE: the file is empty"])


def test_bytes_that_are_no_text_are_a_problem(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_bytes(b"\xff\xfe\n")
    assert [problem.kind for problem in read_run([str(tmp_path / "run.jsonl")]).problems] == ["unreadable"]


def test_shards_of_different_commits_or_configurations_are_no_run(tmp_path: Path) -> None:
    header = json.loads(_lines()[0])
    files = []
    for n, commit in enumerate(("aaa", "bbb")):
        changed = {**header, "commit": commit, "facts": {"torch": f"2.{n}"}}
        files.append(tmp_path / f"{n}.jsonl")
        files[-1].write_text("\n".join([json.dumps(changed), *_lines()[1:]]), encoding="utf-8")
    kinds = [problem.sentence for problem in read_run([str(file) for file in files]).problems]
    assert kinds == [
        "the files of this run differ in torch",
        "the files of this run come from different commits: aaa, bbb",
    ]
