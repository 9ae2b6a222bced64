"""The matrix as values: its figures, its exit code, its text and its JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from harness.matrix import result
from harness.matrix.result import Cell, Matrix, Parity, Row, merged
from harness.matrix.text import lines, mark

CAUGHT = Row(
    name="A1",
    what=result.FAULT,
    title="the descriptor is lost",
    reference="no public report",
    expected="one",
    verdict=result.CAUGHT,
    cells={"one": Cell(asked=2, violated=1, token="dense/1.1/s0", sentence="one: moved"), "two": Cell(asked=3)},
    parity=Parity(loss=1e-4, cosine=0.9999),
    parity_here=Parity(loss=math.inf, cosine=0.0),
)
MISSED = replace(CAUGHT, name="A2", verdict=result.MISSED, cells={"one": Cell(asked=9), "two": Cell(asked=3)})
QUIET = Row(name="healthy", what=result.HEALTHY, title="as it is", verdict=result.QUIET, cells={"one": Cell(asked=12)})
REWRITE = replace(QUIET, name="sorted_another_way", what=result.REWRITE)


def of(*rows: Row, whole: bool = False) -> Matrix:
    return Matrix(
        subject="v4model",
        profile="ci",
        started="2026-01-01T00:00:00+00:00",
        seconds=61.4,
        properties=["one", "two", "never asked"],
        rows=rows,
        whole=whole,
    )


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([CAUGHT, QUIET, REWRITE], 0),
        ([CAUGHT, MISSED], 1),
        ([replace(CAUGHT, verdict=result.INACTIVE)], 1),
        ([replace(CAUGHT, verdict=result.ALARM)], 1),
        ([CAUGHT, replace(QUIET, verdict=result.ALARM)], 1),
        ([CAUGHT, replace(REWRITE, verdict=result.INACTIVE)], 1),
        ([CAUGHT, replace(QUIET, verdict=result.UNDECIDED)], 3),
        ([MISSED, replace(QUIET, verdict=result.UNDECIDED)], 1),
    ],
)
def test_the_exit_code(rows: list[Row], code: int) -> None:
    assert of(*rows).exit_code == code


def test_a_property_that_catches_nothing_fails_a_whole_run_only() -> None:
    assert of(CAUGHT).idle == []
    whole = of(CAUGHT, QUIET, whole=True)
    assert (whole.idle, whole.exit_code) == (["two", "never asked"], 1)


def test_figures() -> None:
    matrix = of(QUIET, CAUGHT, MISSED, REWRITE)
    assert matrix.headline == "1 of 2 faults caught, 0 alarms on the healthy model and 1 equivalent rewrite"
    assert "misses 2 of 2 on a pack of 4,096 tokens, 0 on the small case" in matrix.parity_line
    assert of(REWRITE).parity_line == ""


def test_parity_sees_what_the_field_would_stop_at() -> None:
    assert not Parity(loss=5e-3, cosine=0.999).sees
    assert Parity(loss=5.1e-3, cosine=1.0).sees
    assert Parity(loss=0.0, cosine=0.998).sees
    assert Parity(loss=math.nan, cosine=1.0).sees


def test_json_has_no_number_that_is_none() -> None:
    data = json.loads(json.dumps(of(CAUGHT, QUIET).to_json(), allow_nan=False))
    assert data["schema_version"] == 1
    row = data["rows"][0]
    assert row["parity_here"] == {"loss": None, "cosine": 0.0, "sees": True}
    assert row["cells"]["one"]["token"] == "dense/1.1/s0"
    assert data["rows"][1]["parity"] is None


def test_parts_of_the_healthy_row_are_added_and_the_worst_stands() -> None:
    bad = replace(QUIET, verdict=result.ALARM, cells={"one": Cell(asked=1, violated=1, token="t"), "two": Cell()})
    row = merged([QUIET, bad, QUIET])
    assert row.verdict == result.ALARM
    assert row.cells["one"] == Cell(asked=25, violated=1, token="t")
    assert set(row.cells) == {"one", "two"}


def test_the_text_fits_80_columns_and_names_what_is_wrong() -> None:
    long = replace(MISSED, title="what goes wrong, told at great length in one line that is far too wide for it")
    alarm = replace(REWRITE, verdict=result.ALARM, cells={"one": Cell(asked=1, violated=1, token="t", sentence="s")})
    text = list(lines(of(QUIET, CAUGHT, long, alarm)))
    assert text[:5] == [
        "          ab",
        "healthy   .   as it is",
        "A1        #.  the descriptor is lost",
        "A2        !.  what goes wrong, told at great length i...",
        "sorted_a~ !   as it is",
    ]
    assert "a one" in text
    assert "  harness replay t --only one" in text
    assert "A2: not caught by the property that must (" in "\n".join(text)
    # Titles of troubles and the parity sentence are whole sentences, for a person to read or to search.
    assert all(len(line) <= 80 for line in text[:10])


def test_marks() -> None:
    assert mark(CAUGHT, "one") == "#"
    assert mark(replace(CAUGHT, expected="two"), "one") == "+"
    assert mark(CAUGHT, "never asked") == " "
    assert mark(replace(CAUGHT, cells={"two": Cell(asked=1, undecided=1)}), "two") == "?"


def test_a_part_that_was_lost_says_why() -> None:
    lost = Row(name="healthy", what=result.HEALTHY, title="RuntimeError: boom", verdict=result.UNDECIDED, cells={})
    assert merged([QUIET, lost]).title == "RuntimeError: boom"
