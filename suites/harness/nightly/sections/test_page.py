"""Nights with a slow drift, a flake, a broken machine and a regression: each is told where one looks for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.baseline.reading import read_run
from harness.baseline.store import baseline_of
from harness.nightly.blocks import Group, Page, Witness
from suites.harness.nightly.made import (
    BROKEN,
    DRIFTS,
    FLAKY,
    FLAKY_ON,
    LATE,
    MISSED,
    NEW_ON,
    NIGHTS,
    REGRESSES,
    SLOWER,
    TOKEN,
    VIOLATED,
    write_nights,
)
from suites.harness.nightly.views import page, row, section, table, view


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """All nights."""
    return write_nights(tmp_path_factory.mktemp("nights"), tests=120)


@pytest.fixture(scope="module")
def told(folders: list[Path]) -> Page:
    """The page of the last one."""
    return page(folders)


def test_one_sentence_says_it_all(told: Page) -> None:
    assert told.state == "failed"
    assert told.headline.startswith("3 regressions, 1 flake, 1 error drifts, 1 test slower and slower; ")
    assert "11 of 12 properties hold, 12 of 13 faults are caught" in told.headline


def test_the_regression_stands_first_and_under_its_cause(told: Page) -> None:
    changes = table(section(told, "changes"), "Changes since the last night")
    assert changes.rows[0][0].text == REGRESSES
    assert (changes.rows[0][2].text, changes.rows[0][2].tone) == ("REGRESSION", "bad")
    assert row(changes, VIOLATED)[2].text == "HOLDS → VIOLATED"
    assert row(changes, MISSED)[2].text == "caught → missed"
    assert len(changes.rows) == 3  # what is red as before, and the flake that passes again, are no changes since then
    assert row(table(section(told, "flakes"), "Tests whose outcome changed"), REGRESSES)[1].text == "red since 11-30"
    failures = section(told, "failures")
    assert failures.lead == "38 red tests = 3 causes."
    groups = [block for block in failures.blocks if isinstance(block, Group)]
    assert [group.title.partition(":")[0] for group in groups] == ["25 red tests", "12 red tests", "1 red test"]
    assert groups[2].items == [REGRESSES]


def test_the_flake_stands_in_the_map_with_its_nights(told: Page) -> None:
    cells = row(table(section(told, "flakes"), "Tests whose outcome changed"), FLAKY)
    assert cells[1].text == "flake, 6 changes"
    nights = cells[2:]
    assert [number for number, cell in enumerate(nights) if cell.text == "F"] == list(FLAKY_ON)
    assert (nights[BROKEN].text, nights[BROKEN].tone) == ("", "hole")
    assert all(cell.text == "·" for n, cell in enumerate(nights) if n not in (*FLAKY_ON, BROKEN))


def test_a_flake_that_is_red_again_is_no_regression(folders: list[Path]) -> None:
    found = page(folders[: FLAKY_ON[1] + 1])
    assert found.headline.startswith("0 regressions, 1 flake")
    (change,) = table(section(found, "changes"), "Changes").rows
    assert (change[0].text, change[2].text, change[2].tone) == (FLAKY, "FLAKE AGAIN", "warn")


def test_a_test_that_did_not_run_is_blank(tmp_path: Path) -> None:
    folders = write_nights(tmp_path, nights=NEW_ON + 2, tests=60)
    lines = folders[-1] / "suites" / "results.jsonl"
    told = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    for line in told:
        if line.get("nodeid") == LATE:
            line["entries"] = [{"tag": "failure", "type": "", "message": "AssertionError"}]
    lines.write_text("".join(json.dumps(line) + "\n" for line in told), encoding="utf-8")
    nights = row(table(section(page(folders), "flakes"), "Tests whose outcome changed"), LATE)[2:]
    assert [cell.text for cell in nights] == [""] * NEW_ON + ["·", "F"]


def test_the_broken_night_is_kept_shown_and_left_out(told: Page, folders: list[Path]) -> None:
    nights = table(section(told, "outcomes"), "Nights, newest first").rows
    assert len(nights) == NIGHTS
    assert nights[NIGHTS - 1 - BROKEN][-1].text == "infrastructure: 100% of the tests are red"
    assert [cells[-1].text for n, cells in enumerate(nights) if n != NIGHTS - 1 - BROKEN] == ["yes"] * (NIGHTS - 1)
    assert "13 nights in the trend" in section(told, "outcomes").lead
    seen = view(folders)
    assert BROKEN not in seen.counted
    assert seen.nights.red[BROKEN].sum() == 120
    # None of its red tests is a flake, and none is slower or faster for it.
    assert len(table(section(told, "flakes"), "Tests whose outcome changed").rows) == 2


def test_the_drift_is_told_with_how_much(told: Page) -> None:
    numerics = section(told, "numerics")
    assert numerics.lead.startswith("cp_matches_one_rank on csa@4 comes nearest to its bound")
    (drift,) = table(numerics, "Errors that rise").rows
    assert drift[0].text == DRIFTS
    assert drift[3].value == pytest.approx(1.34**10, rel=0.35)
    heat = table(numerics, "Largest error")
    columns = list(heat.columns)
    assert row(heat, "cp_matches_one_rank")[columns.index("csa@4")].tone == "h9"
    assert row(heat, VIOLATED)[columns.index("csa")].tone == "bad"
    assert row(heat, VIOLATED)[columns.index("csa@4")].text == ""
    by_depth = table(numerics, "The same by dtype and depth")
    column = list(by_depth.columns).index("csa@4")
    assert [(cells[1].text, cells[column].tone) for cells in by_depth.rows] == [
        ("float64, MTP 1", "h9"),
        ("float64, trunk", "h7"),
    ]


def test_durations_name_the_slowest_twenty_and_what_slows_down(told: Page) -> None:
    durations = section(told, "durations")
    slowest = table(durations, "Slowest 20")
    assert len(slowest.rows) == 20
    assert slowest.rows[0][0].text == SLOWER
    assert [cell.text for cell, *_ in table(durations, "Slower and slower").rows] == [SLOWER]


def test_the_kill_matrix_begins_with_what_is_missed(told: Page) -> None:
    faults = section(told, "faults")
    assert "look at C16" in faults.lead
    matrix = table(faults, "Layouts that violate")
    assert [cell.text for cell in matrix.rows[0][:3:2]] == [MISSED, "missed"]
    framed = [[cell for cell in cells if "framed" in cell.tone] for cells in matrix.rows]
    assert [len(cells) for cells in framed] == [1] * 13 + [0]
    assert table(faults, "How surely").rows[0][0].text == "E7"


def test_strata_begin_with_the_rarest(told: Page) -> None:
    layouts = [cells[1].value for cells in table(section(told, "strata"), "Layouts by stratum").rows]
    assert layouts == sorted(layouts)
    assert section(told, "strata").lead == "6 strata met, none that is wanted is missing."


def test_a_witness_is_told_with_the_command_that_explains_it(told: Page) -> None:
    (witness,) = section(told, "witnesses").blocks
    assert isinstance(witness, Witness)
    assert witness.sentence.startswith("query_sees_no_future: in the trunk query sample 1, position 4 (token 5) read")
    assert witness.command == f"harness explain {TOKEN} --only {VIOLATED}"
    assert witness.picture == ""


def test_cards_differ_from_the_last_night_and_from_the_baseline(folders: list[Path]) -> None:
    base = baseline_of(read_run([str(folders[0] / "suites" / "results.jsonl")]))
    found = page(folders, baseline=base)
    cards = {card.label: card for card in found.cards}
    assert cards["Red tests"].value == "38"
    assert cards["Red tests"].deltas == [("+1 vs last night", "bad"), ("+1 vs baseline", "bad")]
    assert cards["Faults caught"].deltas == [("-1 vs last night", "bad"), ("-1 vs usual", "bad")]
    (group,) = [block for block in section(found, "changes").blocks if isinstance(block, Group)]
    assert group.title == "Against the baseline: 1 regression, 37 still failing, 1 added"
    assert group.items == [f"{REGRESSES}: regression"]


def test_a_part_of_the_baselines_tests_decides_nothing(folders: list[Path], tmp_path: Path) -> None:
    base = baseline_of(read_run([str(folders[0] / "suites" / "results.jsonl")]))
    (part,) = write_nights(tmp_path, nights=1, tests=45)
    found = page([part], baseline=base)
    assert found.headline.startswith("not comparable with the baseline; ")
    assert found.state == "failed"  # a property is violated all the same
    (part / "fuzz" / "report.json").unlink()
    (part / "fuzz" / "results.jsonl").write_text("", encoding="utf-8")
    (part / "faults.json").unlink()
    assert page([part], baseline=base).state == "undecided"


def test_a_broken_night_as_the_newest_decides_nothing(folders: list[Path]) -> None:
    found = page(folders[: BROKEN + 1])
    assert found.state == "undecided"
    assert found.headline == "Nothing can be decided: infrastructure: 100% of the tests are red"
    assert all(not card.deltas or card.label == "Flakes" for card in found.cards)


def test_the_night_after_a_broken_one_is_compared_with_the_one_before(folders: list[Path]) -> None:
    found = page(folders[: BROKEN + 2])
    assert "compared with the night of 2026-11-21" in found.context
    assert section(found, "changes").lead == "Nothing changed since the night of 2026-11-21."


def test_another_configuration_is_no_part_of_the_trend(tmp_path: Path) -> None:
    folders = write_nights(tmp_path, nights=3, tests=60)
    facts = json.loads((folders[1] / "night.json").read_text(encoding="utf-8"))
    (folders[1] / "night.json").write_text(json.dumps(facts | {"key": "cuda"}), encoding="utf-8")
    found = page(folders)
    assert table(section(found, "outcomes"), "Nights").rows[1][-1].text == "another configuration: cuda"
    assert "2 in trends" in found.context


@pytest.mark.parametrize(
    ("pieces", "sections"),
    [
        (["suites/results.jsonl"], ["changes", "outcomes", "durations", "failures", "provenance"]),
        (["fuzz"], ["changes", "numerics", "strata", "witnesses", "provenance"]),
        (["faults.json"], ["changes", "faults", "provenance"]),
        (["bench.json"], ["changes", "machine", "provenance"]),
    ],
    ids=["tests", "properties", "faults", "bench"],
)
def test_a_run_alone_has_the_sections_that_it_has(pieces: list[str], sections: list[str], folders: list[Path]) -> None:
    found = page([folders[-1] / piece for piece in pieces])
    assert [section.id for section in found.sections] == sections
