"""What the files of a stage say: a verdict and a sentence."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from harness.atomic import write_json
from harness.baseline.key import key_of
from harness.conduct.record import FAILED, PASSED, STOPPED, UNDECIDED, StageRecord
from harness.conduct.turns import Judged
from harness.matrix.merge import joined, read_matrix

_Batch = TypeVar("_Batch")

_OF_CODE = {0: PASSED, 1: FAILED, 3: UNDECIDED}


def judge_suites(folder: Path, record: StageRecord, *, diff: Sequence[str]) -> Judged:
    """What `diff-baseline` (the command `diff`) says of the tests.

    A part of the tests does not decide, but one that is red where the baseline's is not is known already.
    """
    results, cut = folder / "suites" / "results.jsonl", record.status == STOPPED
    if not results.exists():
        return Judged(verdict=UNDECIDED, sentence="no test has a result")
    run = subprocess.run(diff, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    files, key = ["suites/results.jsonl"], _key(results)
    try:
        said = json.loads(run.stdout)
    except ValueError:
        sentence = (run.stderr.strip().splitlines() or ["diff-baseline said nothing"])[-1].removeprefix("harness: ")
        return Judged(verdict=UNDECIDED, sentence=sentence, files=tuple(files), key=key)
    write_json(folder / "suites" / "diff.json", said)
    files.append("suites/diff.json")
    problems = "; ".join(problem["sentence"] for problem in said["problems"])
    gated = sum(bool(change["gated"]) for change in said["changes"])
    tests = f"{said['run']['tests']:,} tests"
    if cut:
        sentence = f"{tests} of the baseline's {said['baseline']['tests']:,} have a result, {gated} of them gate"
        return Judged(verdict=FAILED if gated else UNDECIDED, sentence=sentence, files=tuple(files), key=key)
    return Judged(
        verdict=_OF_CODE.get(run.returncode, UNDECIDED),
        sentence=problems or f"{tests}: {said['headline']}",
        files=tuple(files),
        invalid=problems,
        key=key,
    )


def judge_runs(folder: Path, name: str, record: StageRecord) -> Judged:
    """What the runs of `harness run` below a folder found, those included that were stopped."""
    runs = sorted(path.parent for path in (folder / name).glob("*/results.jsonl"))
    units = [unit for run in runs for unit in _lines(run / "results.jsonl")]
    violated = list(dict.fromkeys(unit["property"] for unit in units if unit["outcome"] == "VIOLATED"))
    undecided = list(dict.fromkeys(unit["property"] for unit in units if unit["outcome"] == "UNDECIDED"))
    layouts = sum(unit["layouts"] for unit in units)
    said = [f"{len(record.codes)} whole run{'' if len(record.codes) == 1 else 's'}, {layouts:,} layouts"]
    said += [f"violated: {', '.join(violated)}"] if violated else []
    said += [f"undecided: {', '.join(undecided)}"] if undecided else []
    # A run whose layouts are too few for one of its properties decides nothing; another one may.
    verdict = FAILED if violated else UNDECIDED if undecided or 0 not in record.codes else PASSED
    return Judged(verdict=verdict, sentence="; ".join(said), files=tuple(f"{name}/{run.name}" for run in runs))


def judge_faults(folder: Path, record: StageRecord, *, names: Callable[[], Sequence[str]]) -> Judged:
    """What the batches of the kill matrix found, which are joined into `faults.json`; names are those of all rows."""
    matrices, damaged = _read(_batches(folder / "faults", record), read_matrix)
    if not matrices:
        return Judged(verdict=UNDECIDED, sentence=damaged or "no row was asked")
    matrix = joined(matrices, order=names())
    write_json(folder / "faults.json", matrix.to_json())
    sample = "" if matrix.whole else f" in {len(matrix.rows)} of {len(names())} rows, drawn by the seed"
    verdict = UNDECIDED if damaged and matrix.exit_code == 0 else _OF_CODE[matrix.exit_code]
    return Judged(
        verdict=verdict, sentence=f"{matrix.headline}{sample}{damaged and '; '}{damaged}", files=("faults.json",)
    )


def judge_odds(folder: Path, record: StageRecord) -> Judged:
    """What the batches of odds found, which are joined into `odds.json`."""
    batches, damaged = _read(_batches(folder / "odds", record), lambda data: {**data, "odds": list(data["odds"])})
    if not batches:
        return Judged(verdict=UNDECIDED, sentence=damaged or "no fault was asked")
    found = [each for batch in batches for each in batch["odds"]]
    write_json(folder / "odds.json", {**batches[0], "odds": found})
    verdict = FAILED if 1 in record.codes else UNDECIDED if damaged else PASSED
    said = f"the odds of {len(found)} faults{damaged and '; '}{damaged}"
    return Judged(verdict=verdict, sentence=said, files=("odds.json",))


def judge_peers(folder: Path, record: StageRecord) -> Judged:
    """What public models gave, which is kept as `peers.json`.

    A violation of theirs is no failure here. That one gives something else than its own version's baseline is: either
    the baseline or the harness is wrong.
    """
    tables, damaged = _read([folder / "peers" / "peers.json"], lambda data: {**data, "peers": list(data["peers"])})
    if not tables:
        return Judged(verdict=UNDECIDED, sentence=damaged or "no peer was asked")
    write_json(folder / "peers.json", tables[0])
    asked = [peer for peer in tables[0]["peers"] if not peer["missing"]]
    violating = [peer["name"] for peer in asked if peer["outcome"] == "VIOLATED"]
    moved = [peer["name"] for peer in asked if peer["changes"] and peer["baseline"] == peer["version"]]
    news = [change for peer in asked if peer["baseline"] != peer["version"] for change in peer["changes"]]
    missing = len(tables[0]["peers"]) - len(asked)
    said = [f"{len(violating)} of {len(asked)} peers violate a property"]
    said += [f"{missing} not installed"] if missing else []
    said += [f"not as its own baseline: {', '.join(moved)}"] if moved else []
    said += news
    verdict = UNDECIDED if not asked or record.status == STOPPED else FAILED if moved else PASSED
    return Judged(verdict=verdict, sentence="; ".join(said), files=("peers.json",))


def _read(paths: Iterable[Path], read: Callable[[Mapping[str, Any]], _Batch]) -> tuple[list[_Batch], str]:
    """What can be read of files of JSON, and which cannot: a damaged one costs itself alone."""
    found, damaged = [], []
    for path in paths:
        try:
            found.append(read(json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError, KeyError, TypeError):
            damaged.append(path.name)
    return found, f"{', '.join(damaged)} cannot be read" if damaged else ""


def _batches(folder: Path, record: StageRecord) -> Iterator[Path]:
    return islice(sorted(folder.glob("*.json")), len(record.codes))


def _key(results: Path) -> str:
    """The configuration that a file of results says it holds for."""
    header = next(_lines(results), None)
    facts: Mapping[str, str] | None = header.get("facts") if header else None
    return key_of(facts) or ""


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a file that may have been cut."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)
