"""Files, folders, patterns and compressed files; a place that holds nothing is never an empty success."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from harness.baseline.reading import read_run
from harness.baseline.reading.places import find_files
from suites.harness.baseline import corpus


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two shards in folders of their own, one compressed, and the JSON lines of the same run beside them."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    shutil.copy(corpus.junit("base"), tmp_path / "one" / "junit.xml")
    with gzip.open(tmp_path / "two" / "junit.xml.gz", "wb") as packed:
        packed.write(Path(corpus.junit("phases")).read_bytes())
    shutil.copy(corpus.lines("base"), tmp_path / "results.jsonl")
    return tmp_path


def test_a_folder_a_pattern_and_names_give_the_same(folder: Path) -> None:
    by_folder = read_run([str(folder)])
    by_pattern = read_run([str(folder / "*" / "*.xml*")])
    by_name = read_run([str(folder / "two" / "junit.xml.gz"), str(folder / "one" / "junit.xml")])
    assert by_folder.results == by_pattern.results == by_name.results
    assert len(by_folder.results) == 50
    assert len(by_folder.sources) == 2


def test_a_folder_without_xml_gives_its_json_lines(folder: Path) -> None:
    shutil.rmtree(folder / "one")
    shutil.rmtree(folder / "two")
    assert len(read_run([str(folder)]).results) == 42


def test_a_file_named_twice_is_read_once(folder: Path) -> None:
    file = str(folder / "one" / "junit.xml")
    run = read_run([file, str(folder / "one"), str(folder / "two" / ".." / "one" / "junit.xml")])
    assert len(run.sources) == 1
    assert run.notes == ()


@pytest.mark.parametrize(
    ("place", "words"),
    [("none.xml", "does not exist"), ("*.nothing", "no file matches"), ("empty", "holds no .xml")],
)
def test_a_place_without_files_is_a_problem(place: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    files, missing = find_files([str(tmp_path / place)])
    assert files == []
    assert words in missing[0]
    assert [problem.kind for problem in read_run([str(tmp_path / place)]).problems] == ["absent"]


def test_missing_shards_are_a_problem(folder: Path) -> None:
    assert read_run([str(folder)], shards=2).problems == ()
    assert [p.sentence for p in read_run([str(folder)], shards=3).problems] == ["got 2 of 3 files of this run"]
