"""Synthetic nights in the form that real ones leave: a slow drift, a flake, an infrastructure night, a regression.

Night by night, counted from 0: night 5 is one of a broken machine; `test_flaky` is red on nights 2, 7 and 10;
`test_regresses` is red on the last night, when a property is violated and a fault is missed too; the error of
`cp_matches_one_rank@4` on csa grows by a third a night; `test_slower` takes longer and longer; `test_late` is new on
night 8. 37 tests are red on every night, for two causes.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from harness.report import Finding, Report, ResultLines, UnitResult, case_file_name, write_report
from harness.verdict import Outcome
from harness.witness import Place, Reading, Row, Witness

FIRST = datetime(2026, 11, 17, 2, 0, tzinfo=UTC)
NIGHTS = 14
BROKEN = 5
FLAKY_ON = (2, 7, 10)
NEW_ON = 8
FLAKY = "suites/train/test_loss.py::test_flaky[warmup-2]"
REGRESSES = "suites/v4model/layers/test_indexer.py::test_regresses[csa]"
SLOWER = "suites/v4model/model/test_model.py::test_slower"
LATE = "suites/v4model/ops/test_pick.py::test_late"
DRIFTS = "cp_matches_one_rank on csa@4"
VIOLATED = "query_sees_no_future"
MISSED = "C16"
FACTS = {"device": "cpu", "dtype": "float64", "torch": "2.13.0", "python": "3.11", "profile": "ci", "gates": "none"}
KEY = "cpu-float64-torch2.13.0-python3.11-ci"
TOKEN = "csa/1.7/s0"

_PROPERTIES = ("query_sees_only_its_sample", VIOLATED, "packed_equals_alone", "padding_changes_nothing")
_KINDS = ("all", "csa", "dense", "hca")
_RANKED = ("cp_matches_one_rank", "no_rank_waits")
_FAULTS = ("A1", "A3", "B2", "B5", "C3", "C4", "C7", MISSED, "D4", "D5", "E3", "E7", "F2", "R1")
_STRATA = (
    "one sample",
    "two samples",
    "three samples and more",
    "sample of one token",
    "no padding",
    "cut inside a window",
)


@dataclass(frozen=True)
class Test:
    """One test of one night: entries as the plugin writes them."""

    __test__ = False

    id: str
    seconds: float
    entries: tuple[Mapping[str, str], ...] = ()


def write_nights(folder: Path, *, nights: int = NIGHTS, tests: int = 400, picture: Path | None = None) -> list[Path]:
    """The folders of all nights, oldest first; picture is that of the witness of the last one."""
    return [write_night(folder, number, last=nights - 1, tests=tests, picture=picture) for number in range(nights)]


def write_night(folder: Path, number: int, *, last: int, tests: int = 400, picture: Path | None = None) -> Path:
    """One night's folder."""
    started = FIRST + timedelta(days=number)
    night = folder / started.strftime("%Y%m%dT%H%M%S")
    (night / "suites").mkdir(parents=True)
    found = list(tests_of(number, last=last, tests=tests))
    broken = number == BROKEN
    write_results(night / "suites" / "results.jsonl", found, started)
    if not broken:
        write_run(night / "fuzz", _fuzz_units(number, last), started, wanted=_STRATA)
        write_run(night / "ranks", _ranked_units(number), started, wanted=())
        if number == last and picture is not None:
            unit = next(unit for unit in _fuzz_units(number, last) if unit.findings)
            shutil.copy(picture, (night / "fuzz" / case_file_name(unit, 0)).with_suffix(".svg"))
        _write_json(night / "faults.json", faults_of(missed=number == last))
        _write_json(night / "odds.json", _odds())
        _write_json(night / "bench.json", _bench(number))
    _write_json(night / "night.json", _facts(number, started, broken=broken))
    return night


def tests_of(number: int, *, last: int, tests: int) -> Iterator[Test]:
    """The tests of a night: named ones with a story, red ones with two causes, and plain passes."""
    random_of = random.Random(number)
    if number == BROKEN:
        gone = "RuntimeError: CUDA error: no device"
        for n in range(tests):
            yield Test(_plain(n), 0.01, ({"tag": "error", "type": "", "message": f'failed on setup with "{gone}"'},))
        return
    yield Test(FLAKY, 0.8, _failure(f"TimeoutError: no answer in {number} s") if number in FLAKY_ON else ())
    yield Test(
        REGRESSES, 0.3, _failure("AssertionError: picks of row 5 differ\nassert 3 == 5") if number == last else ()
    )
    yield Test(SLOWER, 2 * 1.1**number)
    if number >= NEW_ON:
        yield Test(LATE, 0.2)
    for n in range(25):
        yield Test(f"suites/peers/test_megatron.py::test_known[{n}]", 0.1, _failure(f"ImportError: no module {n}"))
    for n in range(12):
        yield Test(
            f"suites/peers/test_hf.py::test_shapes[{n}]", 0.1, _failure(f"AssertionError: assert {n} == {n + 1}")
        )
    skipped = ({"tag": "skipped", "type": "pytest.skip", "message": "needs two GPUs"},)
    for n in range(tests - 40):
        yield Test(_plain(n), (0.02 + n % 17 / 20) * random_of.uniform(0.9, 1.1), skipped if n % 40 == 0 else ())


def _plain(number: int) -> str:
    return f"suites/v4model/pack/test_layout.py::test_plain[{number}]"


def _failure(message: str) -> tuple[Mapping[str, str], ...]:
    return ({"tag": "failure", "type": "", "message": message},)


def write_results(path: Path, tests: list[Test], started: datetime) -> None:
    """Lines as the plugin writes them."""
    lines: list[dict[str, Any]] = [
        {"kind": "header", "schema_version": 1, "started": started.isoformat(), "commit": "0b58f51a2c3d",
         "selection": {"arguments": ["suites"]}, "facts": FACTS},
        {"kind": "collected", "ids": [test.id for test in tests]},
        *({"kind": "test", "nodeid": test.id, "file": test.id.partition("::")[0], "line": 3,
           "seconds": round(test.seconds, 3), "entries": list(test.entries)} for test in tests),
        {"kind": "footer", "exit_code": 1, "tests": len(tests), "finished": started.isoformat()},
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _fuzz_units(number: int, last: int) -> list[UnitResult]:
    units = []
    for name in _PROPERTIES:
        for kind in _KINDS:
            random_of = random.Random(f"{number}{name}{kind}")
            exact = name.startswith("query")
            violated = number == last and name == VIOLATED and kind == "csa"
            units.append(
                UnitResult(
                    property_name=name,
                    kind=kind,
                    outcome=Outcome.VIOLATED if violated else Outcome.HOLDS,
                    counts={Outcome.HOLDS: 140, Outcome.VACUOUS: 10, Outcome.VIOLATED: int(violated)},
                    error=1.48 if violated else 0.0 if exact else 10 ** random_of.uniform(-14, -13),
                    bound=0.0 if exact else 1e-9,
                    seconds=random_of.uniform(20, 30),
                    findings=(_finding(),) if violated else (),
                    strata={stratum: 5 + 31 * n for n, stratum in enumerate(_STRATA[:5])},
                )
            )
    return units


def _ranked_units(number: int) -> list[UnitResult]:
    return [
        UnitResult(
            property_name=name,
            kind=f"{kind}@{ranks}",
            outcome=Outcome.HOLDS,
            counts={Outcome.HOLDS: 75},
            error=(error := _ranked_error(name, kind, ranks, number)),
            bound=0.0 if name == "no_rank_waits" else 1e-9,
            parts={"float64, MTP 1": error, "float64, trunk": error / 100} if name != "no_rank_waits" else {},
            seconds=20.0,
            strata={"cut inside a window": 40},
        )
        for name in _RANKED
        for kind in _KINDS
        for ranks in ("1", "2", "4", "4p")
    ]


def _ranked_error(name: str, kind: str, ranks: str, number: int) -> float:
    if name == "no_rank_waits":
        return 0.0
    random_of = random.Random(f"{number}{name}{kind}{ranks}")
    if f"{name} on {kind}@{ranks}" == DRIFTS:
        return 4e-12 * 1.34**number * random_of.uniform(0.9, 1.1)
    return 10 ** random_of.uniform(-13, -12)


def _finding() -> Finding:
    """What `harness run --fault C16` finds."""
    witness = Witness(
        property=VIOLATED,
        query=Place(1, 4, 5),
        source=Place(1, 5, 6),
        branch="pool",
        layer="layers.0.self_attn",
        at=Place(1, 4, 5),
        row=Row(first=Place(1, 3, 4), last=Place(1, 6, 7), reading=Reading.READ),
        what="logits moved under other token ids",
        magnitude=1.48,
        bound=0.0,
    )
    return Finding(token=TOKEN, case={"token": TOKEN}, witness=witness, first="csa/50.9+70/s3", shrink_cases=9)


def write_run(folder: Path, units: list[UnitResult], started: datetime, *, wanted: tuple[str, ...]) -> Path:
    """A folder as `harness run` leaves it."""
    folder.mkdir(parents=True)
    report = Report(
        subject="v4model",
        profile="nightly",
        seed=started.toordinal(),
        fault=None,
        data=None,
        corpus={"name": "built-in", "digest": "3436ce40dc9b", "samples": 400},
        jobs=2,
        folder=str(folder),
        started=started.isoformat(),
        seconds=600.0,
        versions={"python": "3.11.7", "torch": "2.13.0+cpu"},
        planned=len(units),
        units=tuple(units),
        wanted_strata=wanted,
    )
    with ResultLines(folder) as lines:
        for unit in units:
            lines.append(unit)
    write_report(report, folder)
    return folder


def faults_of(*, missed: bool) -> dict[str, Any]:
    """A kill matrix; one fault is missed, or none."""
    return {
        "schema_version": 1,
        "subject": "v4model",
        "profile": "ci",
        "started": FIRST.isoformat(),
        "seconds": 300.0,
        "properties": list(_PROPERTIES),
        "rows": [_fault(number, name, missed=missed and name == MISSED) for number, name in enumerate(_FAULTS)],
        "absent": {"A10": "needs a layer that v4model has not"},
    }


def _fault(number: int, name: str, *, missed: bool) -> dict[str, Any]:
    rewrite = name == "R1"
    expected = None if rewrite else _PROPERTIES[number % len(_PROPERTIES)]
    hit = not rewrite and not missed
    cells = {}
    for prop in _PROPERTIES:
        violated = (24 - number if prop == expected else number % 5) if hit else 0
        token = TOKEN if violated else None
        cells[prop] = {"asked": 24, "violated": violated, "undecided": 0, "token": token, "sentence": None}
    return {
        "name": name,
        "what": "rewrite" if rewrite else "fault",
        "title": f"the mechanism of {name} in a few words",
        "reference": "an issue",
        "expected": expected,
        "verdict": "quiet" if rewrite else "caught" if hit else "missed",
        "cells": cells,
        "parity": None if rewrite else {"loss": 1e-4 * number, "cosine": 1 - 0.01 * number, "sees": number > 6},
    }


def _odds() -> dict[str, Any]:
    odds = [
        {
            "fault": name,
            "property": _PROPERTIES[n % 4],
            "cases": 300,
            "caught": 280 - 20 * n,
            "a_layout": (280 - 20 * n) / 300,
            "a_layout_at_least": 0.01,
            "layouts_a_run": 162,
            "a_run_at_least": 0.97 if name == "E7" else 0.99999,
            "trouble": "",
        }
        for n, name in enumerate(_FAULTS[:12])
    ]
    return {"schema_version": 1, "profile": "ci", "seed": None, "odds": odds}


def _bench(number: int) -> dict[str, Any]:
    windows = (4096, 8192, 16384, 32768, 65536)
    return {
        "ladder": [
            {"window": w, "peak_bytes": int(w * 3.1e5 + 2e9), "predicted_bytes": int(w * 3e5 + 2e9)} for w in windows
        ],
        "steps": [{"window": w, "median_ms": w / 40 + number, "spread_ms": w / 1000} for w in windows[:3]],
    }


def _facts(number: int, started: datetime, *, broken: bool) -> dict[str, Any]:
    stages = []
    for name in ("suites", "fuzz", "ranks", "faults", "odds", "bench"):
        out = broken and name != "suites"
        reason = "the machine is broken" if out else ""
        status = "left out" if out else "done"
        stages.append({"name": name, "status": status, "reason": reason, "seconds": 600, "files": []})
    return {
        "schema_version": 1,
        "started": started.isoformat(),
        "ended": (started + timedelta(hours=1)).isoformat(),
        "seed": started.toordinal(),
        "commit": f"{0x0B58F51A + number:08x}",
        "dirty": False,
        "versions": {"python": "3.11.7", "torch": "2.13.0+cpu", "v4pack": "0.1.0"},
        "device": "cpu, 2 cores",
        "key": KEY,
        "shards": ["1/1"],
        "budget_s": 3600,
        "validity": "infrastructure: 100% of the tests are red" if broken else "valid",
        "stages": stages,
    }


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data), encoding="utf-8")
