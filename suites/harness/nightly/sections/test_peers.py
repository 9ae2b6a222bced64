"""Two nights with different versions of a public model: what it fixes, what it breaks, and what was not asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.nightly.blocks import Group, Page, Witness
from harness.nightly.reading import read_night
from harness.nightly.summary import Summary, summarise
from suites.harness.nightly.made import write_nights
from suites.harness.nightly.views import page, row, section, table
from suites.harness.peers.made import ALONE, LEAK, MISSING, gave, write_peers, write_two_versions


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two nights; between them a version that fixes one property and breaks another."""
    made = write_nights(tmp_path_factory.mktemp("nights"), nights=2, tests=60)
    write_two_versions(made)
    return made


@pytest.fixture(scope="module")
def told(folders: list[Path]) -> Page:
    return page(folders)


def test_a_row_says_version_and_verdicts(told: Page) -> None:
    found = section(told, "peers")
    assert found.lead.startswith("1 of 1 peer asked violate a property; 1 could not be asked; 2 verdicts changed")
    cells = row(table(found, "Verdict of each property"), "theirs-packed")
    assert [cell.text for cell in cells] == ["theirs-packed", "theirs 0.8.0", "0.7.0", "violated", "holds"]
    assert cells[3].title.startswith("VIOLATED on hca: packed_equals_alone")
    (absent,) = [each for each in table(found, "Verdict").rows if each[0].text == "other"]
    assert (absent[1].text, absent[1].title, absent[3].text) == ("other, missing", MISSING, "")


def test_changes_against_the_stored_version_and_witnesses_stand_below(told: Page) -> None:
    blocks = section(told, "peers").blocks
    (group,) = [block for block in blocks if isinstance(block, Group)]
    assert group.items[1] == f"theirs-packed: 0.8.0 fixes {LEAK} on csa"
    (witness,) = [block for block in blocks if isinstance(block, Witness)]
    assert witness.title == f"theirs-packed 0.8.0: {ALONE}"
    assert witness.command.startswith("harness replay hca/1.8/s0")


def test_changes_since_the_last_night_name_both_versions_and_are_no_regression(told: Page) -> None:
    changes = table(section(told, "changes"), "Changes since the last night")
    broken, fixed = row(changes, f"theirs-packed: {ALONE}"), row(changes, f"theirs-packed: {LEAK}")
    assert (broken[2].text, broken[2].tone) == ("HOLDS → VIOLATED", "warn")
    assert (fixed[2].text, fixed[2].tone) == ("VIOLATED → HOLDS", "good")
    assert "0.7.0 → 0.8.0" in [cell.text for cell in broken]


def test_a_new_version_with_the_same_verdicts_is_told(tmp_path: Path) -> None:
    made = write_nights(tmp_path, nights=2, tests=60)
    for night, version in zip(made, ("0.7.0", "0.7.1"), strict=True):
        write_peers(night, gave(version, {LEAK: "VV"}))
    cells = row(table(section(page(made), "changes"), "Changes since"), "theirs-packed")
    assert cells[2].text == "0.7.0 → 0.7.1"


def test_the_history_keeps_versions_and_verdicts_and_nights_without_peers_as_before(folders: list[Path]) -> None:
    summary = summarise(read_night(folders[0]))
    assert summary.peers == {
        "theirs-packed": {"version": "0.7.0", "outcomes": {ALONE: "HOLDS", LEAK: "VIOLATED"}},
    }
    assert Summary.from_json(json.loads(json.dumps(summary.to_json()))) == summary
    assert "peers" not in replace(summary, peers={}).to_json()


def test_without_peers_there_is_no_section(tmp_path: Path) -> None:
    (folder,) = write_nights(tmp_path, nights=1, tests=60)
    assert "peers" not in [each.id for each in page([folder]).sections]
