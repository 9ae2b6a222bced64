"""Baselines of peers: a new version fixes or breaks what an older one did, and nothing is said where nothing moved."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.peers.result import PeerRow
from harness.peers.verdicts import baseline_of, bless, compared
from suites.harness.peers.made import ALONE, LEAK, write_peer


def row(version: str) -> PeerRow:
    return PeerRow(name="theirs-packed", about="", package="theirs", version=version, cells={})


def gave(folder: Path, version: str, verdicts: dict[str, str]) -> None:
    run = write_peer(folder / f"run-{version}", verdicts)
    assert bless(row(version), run=run, baselines=folder / "baselines", reason="as it was found")


def changes(folder: Path, version: str, verdicts: dict[str, str]) -> tuple[str, tuple[str, ...]]:
    found = compared(row(version), run=write_peer(folder / "now", verdicts), baselines=folder / "baselines")
    return found.baseline, found.changes


def test_a_release_fixes_and_breaks(tmp_path: Path) -> None:
    gave(tmp_path, "0.7.0", {ALONE: "VH", LEAK: "VV"})
    assert changes(tmp_path, "0.8.0", {ALONE: "VV", LEAK: "HV"}) == (
        "0.7.0",
        (f"0.8.0 breaks {ALONE} on hca", f"0.8.0 fixes {LEAK} on csa"),
    )


def test_the_same_again_is_no_news(tmp_path: Path) -> None:
    gave(tmp_path, "0.7.0", {ALONE: "VH", LEAK: "UU"})
    assert changes(tmp_path, "0.7.0", {ALONE: "VH", LEAK: "UU"}) == ("0.7.0", ())


def test_without_a_baseline_nothing_is_compared(tmp_path: Path) -> None:
    assert changes(tmp_path, "0.7.0", {ALONE: "VH"}) == ("", ())


@pytest.mark.parametrize(
    ("version", "expected"), [("0.9", "0.9"), ("0.10.1", "0.10"), ("0.11", "0.10"), ("0.9.5", "0.9"), ("0.1", "0.10")]
)
def test_its_own_version_else_the_newest_before(version: str, expected: str, tmp_path: Path) -> None:
    for each in ("0.9", "0.10"):
        gave(tmp_path, each, {ALONE: "HH"})
    gave_other = tmp_path / "baselines" / "theirs-packed-by-others-9.9"
    gave_other.mkdir()
    found = baseline_of(row(version), tmp_path / "baselines")
    assert found is not None
    assert found.name == f"theirs-packed-{expected}"


def test_blessing_the_same_changes_nothing(tmp_path: Path) -> None:
    gave(tmp_path, "0.7.0", {ALONE: "VH"})
    again = write_peer(tmp_path / "again", {ALONE: "VH"})
    assert not bless(row("0.7.0"), run=again, baselines=tmp_path / "baselines", reason="again")


def test_a_damaged_baseline_is_told(tmp_path: Path) -> None:
    gave(tmp_path, "0.7.0", {ALONE: "VH"})
    (tmp_path / "baselines" / "theirs-packed-0.7.0" / "tests.txt").unlink()
    name, told = changes(tmp_path, "0.7.0", {ALONE: "VH"})
    assert name == "theirs-packed-0.7.0"
    assert "expected a baseline's file" in told[0]
