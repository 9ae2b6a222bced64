"""`night.json`: written and read back, found again, held by one; and what a night's stages amount to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.conduct.record import (
    DONE,
    FAILED,
    PASSED,
    SILENT,
    UNDECIDED,
    NightRecord,
    StageRecord,
    held,
    newest_unfinished,
    read_record,
)
from harness.errors import UsageError

NIGHT = NightRecord(
    started="2026-01-02T03:04:05+00:00",
    seed=7,
    commit="abc",
    dirty=True,
    versions={"python": "3.11"},
    device="cpu, 2 cores",
    budget_s=600.0,
)
STAGE = StageRecord(name="fuzz", seconds=61.5, share_s=120.0, codes=(0, 3), step_s=31.0, files=("fuzz/0001",))


def of(*verdicts: str, validity: str = "valid") -> NightRecord:
    stages = (replace(STAGE, name=str(n), verdict=verdict) for n, verdict in enumerate(verdicts))
    return replace(NIGHT, stages=tuple(stages), validity=validity)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    night = NIGHT.having(STAGE).having(replace(STAGE, name="ranks"))
    night.write(tmp_path)
    assert read_record(tmp_path) == night
    assert [path.name for path in tmp_path.iterdir()] == ["night.json"]


def test_a_stage_takes_the_place_of_its_last_record() -> None:
    night = NIGHT.having(STAGE).having(replace(STAGE, seconds=80.0, status=DONE))
    assert [(stage.seconds, stage.status) for stage in night.stages] == [(80.0, "done")]
    assert night.left_s == 520.0
    assert STAGE.left_s == 58.5


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([PASSED, SILENT], 0),
        ([PASSED, UNDECIDED], 3),
        ([PASSED, UNDECIDED, FAILED], 1),
        ([SILENT, SILENT], 3),
        ([], 3),
    ],
)
def test_the_exit_code(verdicts: list[str], code: int) -> None:
    assert of(*verdicts).exit_code == code


def test_a_night_on_a_broken_machine_has_not_passed() -> None:
    assert of(PASSED, validity="infrastructure: fuzz: step 1 ended with 137").exit_code == 3


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema_version": 9}'])
def test_what_is_no_night(tmp_path: Path, text: str) -> None:
    (tmp_path / "night.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="expected a night"):
        read_record(tmp_path)


def test_the_newest_night_without_an_end(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no night without an end"):
        newest_unfinished(tmp_path)
    for name, ended in (("1", None), ("2", None), ("3", "2026-01-02T04:00:00+00:00")):
        (tmp_path / name).mkdir()
        replace(NIGHT, ended=ended).write(tmp_path / name)
    assert newest_unfinished(tmp_path) == tmp_path / "2"


def test_a_folder_has_one_night_at_a_time(tmp_path: Path) -> None:
    with held(tmp_path), pytest.raises(UsageError, match="one at a time"), held(tmp_path):
        raise AssertionError("held twice")
    with held(tmp_path):
        pass
