"""What the files of a stage say."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.conduct.judge import judge_faults, judge_odds, judge_peers, judge_runs, judge_suites
from harness.conduct.record import DONE, FAILED, PASSED, STOPPED, UNDECIDED, StageRecord
from harness.matrix import result
from harness.matrix.result import Matrix
from suites.harness.matrix.test_result import CAUGHT, MISSED, QUIET, REWRITE, of

FACTS = {"device": "cpu", "dtype": "float64", "torch": "2.13.0", "python": "3.11", "profile": "quick"}
NAMES = ["healthy", "A1", "A2", "sorted_another_way"]


def record(*codes: int, status: str = DONE) -> StageRecord:
    return StageRecord(name="stage", codes=codes, status=status)


def diff_that_says(text: str, code: int) -> list[str]:
    return [sys.executable, "-c", f"import sys; print({text!r}); sys.exit({code})"]


def said(*, code: int, gated: int = 0, problem: str = "") -> list[str]:
    data = {
        "headline": f"{gated} regressions",
        "problems": [{"kind": "partial", "sentence": problem}] if problem else [],
        "changes": [{"gated": True}] * gated + [{"gated": False}],
        "run": {"tests": 30},
        "baseline": {"tests": 40},
    }
    return diff_that_says(json.dumps(data), code)


@pytest.fixture
def suites(tmp_path: Path) -> Path:
    (tmp_path / "suites").mkdir()
    header = {"kind": "header", "schema_version": 1, "facts": FACTS}
    (tmp_path / "suites" / "results.jsonl").write_text(json.dumps(header) + "\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("diff", "status", "verdict", "sentence", "invalid"),
    [
        (said(code=0), DONE, PASSED, "30 tests: 0 regressions", ""),
        (said(code=1, gated=2), DONE, FAILED, "30 tests: 2 regressions", ""),
        (said(code=3, problem="a worker crashed"), DONE, UNDECIDED, "a worker crashed", "a worker crashed"),
        (
            said(code=3, problem="the run ended early"),
            STOPPED,
            UNDECIDED,
            "30 tests of the baseline's 40 have a result, 0 of them gate",
            "",
        ),
        (
            said(code=3, problem="the run ended early", gated=1),
            STOPPED,
            FAILED,
            "30 tests of the baseline's 40 have a result, 1 of them gate",
            "",
        ),
    ],
)
def test_suites(suites: Path, diff: list[str], status: str, verdict: str, sentence: str, invalid: str) -> None:
    found = judge_suites(suites, record(0, status=status), diff=diff)
    assert (found.verdict, found.sentence, found.invalid) == (verdict, sentence, invalid)
    assert found.key == "cpu-float64-torch2.13.0-python3.11-quick"
    assert all((suites / name).exists() for name in found.files)
    assert len(found.files) == 2


def test_suites_that_cannot_be_compared(suites: Path) -> None:
    diff = [sys.executable, "-c", "import sys; sys.exit('harness: got no baseline')"]
    found = judge_suites(suites, record(0), diff=diff)
    assert (found.verdict, found.sentence) == (UNDECIDED, "got no baseline")
    assert found.files == ("suites/results.jsonl",)


def test_suites_that_left_nothing(tmp_path: Path) -> None:
    found = judge_suites(tmp_path, record(status=STOPPED), diff=["never called"])
    assert (found.verdict, found.files) == (UNDECIDED, ())


def wrote_run(folder: Path, name: str, outcome: str) -> None:
    """A run that was stopped in its second line."""
    folder.mkdir(parents=True)
    unit = {"property": name, "outcome": outcome, "layouts": 8}
    (folder / "results.jsonl").write_text(json.dumps(unit) + '\n{"prop', encoding="utf-8")


@pytest.mark.parametrize(
    ("outcomes", "codes", "verdict", "sentence"),
    [
        (["HOLDS", "VACUOUS"], (0,), PASSED, "1 whole run, 16 layouts"),
        (["HOLDS", "VIOLATED"], (0,), FAILED, "1 whole run, 16 layouts; violated: p1"),
        (["HOLDS", "VIOLATED"], (), FAILED, "0 whole runs, 16 layouts; violated: p1"),
        (["HOLDS", "UNDECIDED"], (0, 3), UNDECIDED, "2 whole runs, 16 layouts; undecided: p1"),
        (["HOLDS", "VACUOUS"], (3,), UNDECIDED, "1 whole run, 16 layouts"),
        (["HOLDS", "HOLDS"], (), UNDECIDED, "0 whole runs, 16 layouts"),
    ],
)
def test_runs(tmp_path: Path, outcomes: list[str], codes: tuple[int, ...], verdict: str, sentence: str) -> None:
    for number, outcome in enumerate(outcomes):
        wrote_run(tmp_path / "fuzz" / f"000{number + 1}", f"p{number}", outcome)
    found = judge_runs(tmp_path, "fuzz", record(*codes))
    assert (found.verdict, found.sentence) == (verdict, sentence)
    assert found.files == ("fuzz/0001", "fuzz/0002")


def wrote_batch(folder: Path, number: int, data: Any) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{number:04}.json").write_text(json.dumps(data), encoding="utf-8")


def faults(folder: Path, *batches: Matrix) -> Any:
    for number, batch in enumerate(batches, 1):
        wrote_batch(folder / "faults", number, batch.to_json())
    found = judge_faults(folder, record(*[0] * len(batches)), names=lambda: NAMES)
    return found, json.loads((folder / "faults.json").read_text(encoding="utf-8"))


def test_a_sample_of_the_kill_matrix_is_no_whole_one(tmp_path: Path) -> None:
    found, data = faults(tmp_path, of(QUIET), of(CAUGHT))
    assert found.verdict == PASSED
    assert found.sentence == "1 of 1 fault caught, 0 alarms on the healthy model in 2 of 4 rows, drawn by the seed"
    assert (data["whole"], data["idle"]) == (False, [])


def test_all_rows_are_a_whole_matrix(tmp_path: Path) -> None:
    found, data = faults(tmp_path, of(REWRITE, CAUGHT), of(replace(CAUGHT, name="A2"), QUIET))
    assert [row["name"] for row in data["rows"]] == NAMES
    assert (data["whole"], data["idle"]) == (True, ["two", "never asked"])
    assert found.verdict == FAILED, "two properties caught nothing"
    assert found.sentence.endswith("1 equivalent rewrite")


@pytest.mark.parametrize(("row", "verdict"), [(MISSED, FAILED), (replace(QUIET, verdict=result.UNDECIDED), UNDECIDED)])
def test_a_missed_fault_is_a_failure(tmp_path: Path, row: result.Row, verdict: str) -> None:
    assert faults(tmp_path, of(CAUGHT), of(row))[0].verdict == verdict


def test_a_batch_that_was_stopped_is_not_counted(tmp_path: Path) -> None:
    wrote_batch(tmp_path / "faults", 1, of(CAUGHT).to_json())
    wrote_batch(tmp_path / "faults", 2, "a file of an earlier try")
    assert judge_faults(tmp_path, record(0), names=lambda: NAMES).verdict == PASSED
    assert judge_faults(tmp_path, record(), names=lambda: NAMES).verdict == UNDECIDED


def test_odds_are_joined(tmp_path: Path) -> None:
    for number, name in enumerate("ab", 1):
        wrote_batch(tmp_path / "odds", number, {"schema_version": 1, "profile": "ci", "odds": [{"fault": name}]})
    assert judge_odds(tmp_path, record(0, 0)).verdict == PASSED
    assert judge_odds(tmp_path, record(0, 1)).verdict == FAILED
    data = json.loads((tmp_path / "odds.json").read_text(encoding="utf-8"))
    assert data == {"schema_version": 1, "profile": "ci", "odds": [{"fault": "a"}, {"fault": "b"}]}
    assert judge_odds(tmp_path, record()).verdict == UNDECIDED


def test_a_damaged_batch_costs_itself_alone(tmp_path: Path) -> None:
    wrote_batch(tmp_path / "faults", 1, of(CAUGHT).to_json())
    wrote_batch(tmp_path / "faults", 2, "no matrix")
    judged = judge_faults(tmp_path, record(0, 0), names=lambda: NAMES)
    assert judged.verdict == UNDECIDED
    assert judged.sentence.startswith("1 of 1 fault caught")
    assert judged.sentence.endswith(" cannot be read")
    wrote_batch(tmp_path / "odds", 1, {"schema_version": 1})
    judged = judge_odds(tmp_path, record(0))
    assert (judged.verdict, judged.sentence.endswith(" cannot be read")) == (UNDECIDED, True)


def peer(name: str, *, outcome: str = "HOLDS", version: str = "0.7.0", changes: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "name": name,
        "outcome": outcome,
        "version": version,
        "baseline": "0.7.0",
        "missing": "",
        "changes": changes,
    }


ABSENT = {**peer("absent", outcome="UNDECIDED"), "missing": "it is not installed"}


@pytest.mark.parametrize(
    ("peers", "status", "verdict", "sentence"),
    [
        (
            [peer("a"), peer("b", outcome="VIOLATED"), ABSENT],
            DONE,
            PASSED,
            "1 of 2 peers violate a property; 1 not installed",
        ),
        (
            [peer("a", changes=("0.7.0 breaks x",))],
            DONE,
            FAILED,
            "0 of 1 peers violate a property; not as its own baseline: a",
        ),
        (
            [peer("a", version="0.8.0", changes=("0.8.0 fixes x",))],
            DONE,
            PASSED,
            "0 of 1 peers violate a property; 0.8.0 fixes x",
        ),
        ([ABSENT], DONE, UNDECIDED, "0 of 0 peers violate a property; 1 not installed"),
        ([peer("a")], STOPPED, UNDECIDED, "0 of 1 peers violate a property"),
    ],
)
def test_peers(peers: list[Any], status: str, verdict: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "peers").mkdir()
    (tmp_path / "peers" / "peers.json").write_text(json.dumps({"peers": peers}), encoding="utf-8")
    judged = judge_peers(tmp_path, record(0, status=status))
    assert (judged.verdict, judged.sentence, judged.files) == (verdict, sentence, ("peers.json",))
    assert len(json.loads((tmp_path / "peers.json").read_text(encoding="utf-8"))["peers"]) == len(peers)


def test_peers_that_left_nothing_are_undecided(tmp_path: Path) -> None:
    assert judge_peers(tmp_path, record()).verdict == UNDECIDED
