"""Nights are read whole, in pieces, and damaged: damage makes a night invalid and is named, and never raises."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.nightly.reading import read_night, read_nights
from suites.harness.nightly.made import BROKEN, KEY, NIGHTS, write_night


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The last night."""
    return write_night(tmp_path, NIGHTS - 1, last=NIGHTS - 1, tests=60)


def test_a_whole_night_is_valid_and_has_all_its_parts(folder: Path) -> None:
    night = read_night(folder)
    assert night.facts.is_valid
    assert night.facts.key == KEY
    assert night.suites is not None
    assert len(night.suites.results) == 61
    assert {run.folder.name for run in night.runs} == {"fuzz", "ranks"}
    assert all(run.report is not None for run in night.runs)
    assert None not in (night.faults, night.odds, night.bench)


def test_a_night_that_says_it_is_broken_stays_so(tmp_path: Path) -> None:
    night = read_night(write_night(tmp_path, BROKEN, last=NIGHTS, tests=20))
    assert night.facts.validity == "infrastructure: 100% of the tests are red"
    assert (night.runs, night.faults) == ((), None)


def _cut(path: Path) -> None:
    path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:-2]), encoding="utf-8")


def _without(path: Path, key: str) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    del data[key]
    path.write_text(json.dumps(data), encoding="utf-8")


def _says(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text, encoding="latin-1") and None


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "tests were killed": (lambda folder: _cut(folder / "suites" / "results.jsonl"), "the run did not finish"),
    "a report is no JSON": (_says("fuzz/report.json", "{"), "report.json: "),
    "a report misses a field": (lambda folder: _without(folder / "ranks/report.json", "units"), "'units' is missing"),
    "another schema": (_says("fuzz/report.json", '{"schema_version": 9}'), "got 9"),
    "a kill matrix without rows": (lambda folder: _without(folder / "faults.json", "rows"), "expected rows"),
    "a row without a verdict": (
        _says("faults.json", '{"properties": [], "rows": [{"name": "A1"}]}'),
        "'what' is missing",
    ),
    "a list": (_says("bench.json", "[1]"), "no JSON object"),
    "bytes": (_says("odds.json", "\xff\xfe"), "odds.json: "),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_makes_a_night_invalid_and_is_named(what: str, folder: Path) -> None:
    spoil, said = DAMAGE[what]
    spoil(folder)
    validity = read_night(folder).facts.validity
    assert validity.startswith("invalid: ")
    assert said in validity


def test_units_of_a_run_that_was_stopped_count_and_the_cut_line_does_not(folder: Path) -> None:
    (folder / "fuzz" / "report.json").unlink()
    lines = folder / "fuzz" / "results.jsonl"
    lines.write_text(lines.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    run = next(run for run in read_night(folder).runs if run.folder.name == "fuzz")
    assert run.report is None
    assert len(run.units) == 15


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema_version": 2}', '{"schema_version": 1}'])
def test_what_is_no_night_is_refused(content: str, folder: Path) -> None:
    (folder / "night.json").write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=r"expected a night; where: .*night\.json"):
        read_nights([str(folder)])


def test_pieces_together_are_one_night(folder: Path) -> None:
    pieces = ["suites/results.jsonl", "fuzz", "ranks", "faults.json", "odds.json", "bench.json"]
    (night,) = read_nights(str(folder / piece) for piece in pieces)
    whole = read_night(folder)
    assert night.folder is None
    assert (night.facts.started, night.facts.key) == (whole.facts.started, whole.facts.key)
    assert night.suites is not None
    assert whole.suites is not None
    assert night.suites.results == whole.suites.results
    assert night.runs == whole.runs
    assert (night.faults, night.odds, night.bench) == (whole.faults, whole.odds, whole.bench)


def test_a_place_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file"):
        read_nights([str(tmp_path / "gone")])
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(UsageError, match=r"one of faults, odds, peers, bench\.json"):
        read_nights([str(tmp_path / "other.json")])
