"""Cells of the table: the strongest outcome over kinds, the smallest witness, and why others are undecided."""

from __future__ import annotations

from dataclasses import replace

from harness.peers.result import PeerRow, PeerTable, cells_of
from harness.peers.text import lines, mark
from harness.verdict import Outcome
from suites.harness.peers.made import ALONE, LEAK, finding, report


def row(verdicts: dict[str, str], *, missing: str = "") -> PeerRow:
    cells = {} if missing else cells_of(report(verdicts), [ALONE, LEAK, "not_asked"])
    return PeerRow(name="theirs", about="packed", package="theirs", version="1.0", cells=cells, missing=missing)


def table(*rows: PeerRow) -> PeerTable:
    return PeerTable(properties=(ALONE, LEAK), rows=rows, started="2026-11-30", seconds=60.0, cpu_seconds=99.0, jobs=2)


def test_the_smallest_of_all_kinds_is_the_witness() -> None:
    cell = cells_of(report({LEAK: "VV"}), [LEAK])[LEAK]
    assert cell.outcome is Outcome.VIOLATED
    (witness,) = cell.witnesses
    assert witness.token == "csa/1.4/s0"
    assert witness.command == f"harness replay csa/1.4/s0 --only {LEAK} --subject theirs:Model"
    assert cell.kinds == {"csa": "VIOLATED", "hca": "VIOLATED"}


def test_one_kind_is_enough_and_what_was_not_asked_has_no_cell() -> None:
    cells = cells_of(report({LEAK: "HV", ALONE: "HH"}), [ALONE, LEAK, "not_asked"])
    assert {name: cell.outcome for name, cell in cells.items()} == {ALONE: Outcome.HOLDS, LEAK: Outcome.VIOLATED}


def test_what_is_undecided_says_why_and_is_no_pass() -> None:
    found = row({ALONE: "UU"})
    assert found.cells[ALONE].reason.startswith("it gives no 'loss'")
    assert found.outcome is Outcome.UNDECIDED
    assert row({ALONE: "HH", LEAK: "UU"}).outcome is Outcome.HOLDS


def test_a_peer_that_is_not_there_is_undecided_whatever_else() -> None:
    found = row({}, missing="theirs is not installed; harness peers --make theirs-1.0")
    assert found.outcome is Outcome.UNDECIDED
    assert [mark(found, name) for name in (ALONE, LEAK)] == ["?", "?"]
    assert "  UNDECIDED: theirs is not installed; harness peers --make theirs-1.0" in list(lines(table(found)))


def test_the_table_in_text() -> None:
    told = list(lines(table(row({ALONE: "HH", LEAK: "HV"}))))
    assert told[:2] == ["        ab  version   ", "theirs  .#  1.0       packed"]
    assert f"  {LEAK} is VIOLATED on hca" in told
    assert told[-1] == "0 of 1 peers asked violate nothing, in 60 s (99 s of processor time, 2 at a time)"


def test_json_holds_all_of_it() -> None:
    data = table(row({LEAK: "VV"})).to_json()
    assert data["schema_version"] == 1
    assert data["peers"][0]["outcome"] == "VIOLATED"
    assert data["peers"][0]["cells"][LEAK]["witnesses"][0]["token"] == "csa/1.4/s0"


def test_one_defect_does_not_hide_another() -> None:
    trunk = finding(ALONE, "csa/1.4/s0", total=5, lengths=(1, 4))
    ahead = finding(ALONE, "csa/1.2/s0", total=3, lengths=(1, 2))
    ahead = replace(ahead, witness=replace(ahead.witness, depth=1))
    found = report({ALONE: "V"})
    unit = replace(found.units[0], findings=(trunk, ahead))
    cell = cells_of(replace(found, units=(unit,)), [ALONE])[ALONE]
    assert [witness.token for witness in cell.witnesses] == ["csa/1.2/s0", "csa/1.4/s0"]
    assert cell.witnesses[0].command.startswith("harness replay csa/1.2/s0")
