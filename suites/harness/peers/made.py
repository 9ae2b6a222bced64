"""Runs of public models as files, without the models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.peers.result import PeerRow, PeerTable, cells_of
from harness.report import Finding, Report, UnitResult, write_report
from harness.verdict import Outcome
from harness.witness import Place, Witness

LEAK = "query_sees_only_its_sample"
ALONE = "packed_equals_alone"
MISSING = "other is not installed; harness peers --make other-1.0"
WORDS = {"H": Outcome.HOLDS, "V": Outcome.VIOLATED, "U": Outcome.UNDECIDED}


def finding(prop: str, token: str, *, total: int, lengths: tuple[int, ...]) -> Finding:
    query, source = Place(1, 0, lengths[0]), Place(0, 0, 0)
    witness = Witness(property=prop, query=query, source=source, what="logits moved", magnitude=0.5, bound=0.0)
    case = {"total": total, "lengths": list(lengths)}
    return Finding(token=token, case=case, witness=witness, first=token, shrink_cases=3)


def report(verdicts: Mapping[str, str], *, subject: str = "theirs:Model") -> Report:
    """verdicts: for each property a letter a kind ("HV": holds on csa, violated on hca)."""
    units = []
    for prop, letters in verdicts.items():
        for kind, letter in zip(("csa", "hca"), letters, strict=False):
            outcome = WORDS[letter]
            token, lengths = (f"{kind}/1.4/s0", (1, 4)) if kind == "csa" else (f"{kind}/1.8/s0", (1, 8))
            found = (finding(prop, token, total=sum(lengths), lengths=lengths),) if letter == "V" else ()
            measured = {} if letter == "U" else {"error": 0.5 if found else 1e-14, "bound": 0.0}
            reasons = {"it gives no 'loss'": 6} if letter == "U" else {}
            units.append(
                UnitResult(
                    property_name=prop,
                    kind=kind,
                    outcome=outcome,
                    counts={outcome: 6},
                    findings=found,
                    reasons=reasons,
                    **measured,
                )
            )
    return Report(
        subject=subject,
        profile="peers",
        seed=None,
        fault=None,
        data=None,
        corpus={"name": "built-in", "digest": "0"},
        jobs=1,
        folder="",
        started="2026-11-30T02:00:00+00:00",
        seconds=1.0,
        versions={},
        planned=len(units),
        units=tuple(units),
    )


def write_peer(folder: Path, verdicts: Mapping[str, str]) -> Path:
    """A peer's run as `harness run` leaves it; returns its junit.xml."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.jsonl").touch()
    write_report(report(verdicts), folder)
    return folder / "junit.xml"


def gave(version: str, verdicts: dict[str, str], changes: tuple[str, ...] = ()) -> PeerRow:
    return PeerRow(
        name="theirs-packed",
        about="as shipped",
        package="theirs",
        version=version,
        cells=cells_of(report(verdicts), [ALONE, LEAK]),
        baseline="0.7.0",
        changes=changes,
    )


def write_peers(night: Path, *rows: PeerRow) -> None:
    absent = PeerRow(name="other", about="", package="other", version="", cells={}, missing=MISSING)
    found = PeerTable(
        properties=(ALONE, LEAK), rows=(*rows, absent), started="", seconds=60.0, cpu_seconds=99.0, jobs=2
    )
    (night / "peers.json").write_text(json.dumps(found.to_json()), encoding="utf-8")


def write_two_versions(nights: Sequence[Path]) -> None:
    """Two nights; the second has a version that fixes one property and breaks another."""
    write_peers(nights[0], gave("0.7.0", {ALONE: "HH", LEAK: "VV"}))
    changes = (f"0.8.0 breaks {ALONE} on hca", f"0.8.0 fixes {LEAK} on csa")
    write_peers(nights[1], gave("0.8.0", {ALONE: "HV", LEAK: "HH"}, changes))
