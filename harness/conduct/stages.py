"""The stages of a night: which commands they run, and what they ask of the budget.

Weights are shares of the time that is left when a stage begins, among the stages still to come: in ten minutes on two
cores the suites may take five, which is not enough for all of them; in an hour, half an hour, of which they need seven
minutes and pass on the rest.
"""

from __future__ import annotations

import hashlib
import importlib.util
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from harness.conduct.budget import Part
from harness.conduct.judge import judge_faults, judge_odds, judge_peers, judge_runs, judge_suites
from harness.conduct.record import SILENT
from harness.conduct.turns import Judged, Stage, Step

HARNESS = (sys.executable, "-m", "harness")

_SUITES = Part(name="suites", weight=50, least_s=30)
_FUZZ = Part(name="fuzz", weight=18, least_s=20)
_RANKS = Part(name="ranks", weight=12, least_s=30)
_FAULTS = Part(name="faults", weight=15, least_s=30)
_ODDS = Part(name="odds", weight=5, least_s=120)
_PEERS = Part(name="peers", weight=10, least_s=600)

_BATCH = 4
"""Rows of the kill matrix that one command asks: the night's only loss if it is stopped in them."""


Names: TypeAlias = Callable[[], Sequence[str]]
"""Gives names when they are wanted: to know them takes the import of the model."""


def stages(folder: Path, *, seed: int, jobs: int, is_whole: bool, rows: Names, faults: Names) -> list[Stage]:
    """All stages of a night in `folder`, in their order.

    is_whole: there is no budget, so the search ends by itself. rows and faults: what the kill matrix and the odds can
    be asked for.
    """
    return [
        _suites(folder, jobs),
        _runs(folder, _FUZZ, seed=seed, jobs=jobs, is_whole=is_whole, options=()),
        _runs(folder, _RANKS, seed=seed, jobs=jobs, is_whole=is_whole, options=("--cp", "1,2,4")),
        _faults(folder, rows, seed=seed, jobs=jobs),
        _odds(folder, faults, seed=seed, jobs=jobs),
        _peers(folder, jobs),
        _absent("bench", "there is no benchmark"),
    ]


def derived_seed(seed: int, stage: str, number: int) -> int:
    """The seed of a stage's n-th run, below 2^32."""
    return int.from_bytes(hashlib.sha256(f"{seed} {stage} {number}".encode()).digest()[:4])


def _suites(folder: Path, jobs: int) -> Stage:
    results = str(folder / "suites" / "results.jsonl")
    # What has a result keeps it: a night that was killed in the middle of the suites goes on there.
    pytest = ("-m", "pytest", "suites", "-q", "-n", str(jobs), "--dist", "worksteal")
    step = Step(
        command=(sys.executable, *pytest, "--results", results, "--results-continue"), leaves=("suites/results.jsonl",)
    )
    diff = (*HARNESS, "diff-baseline", results, "--fail-on", "removed", "--format", "json")
    return Stage(
        part=_SUITES,
        missing=_no_suites(),
        step=lambda number: None if number else step,
        judge=lambda record: judge_suites(folder, record, diff=diff),
    )


def _no_suites() -> str:
    if not Path("suites").is_dir():
        return "no folder suites here"
    absent = [name for name in ("pytest", "xdist") if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


def _runs(folder: Path, part: Part, *, seed: int, jobs: int, is_whole: bool, options: Sequence[str]) -> Stage:
    """`harness run` again and again, each time on other cases; once, and long, where nothing limits it.

    Short runs and not a long one that is stopped: each of them asks every property.
    """
    name = part.name

    def step(number: int) -> Step | None:
        if is_whole and number:
            return None
        run = f"{name}/{number + 1:04}"
        words = ("run", "--profile", "nightly" if is_whole else "quick", "--jobs", str(jobs), *options)
        seeded = ("--seed", str(derived_seed(seed, name, number)))
        return Step(command=(*HARNESS, *words, *seeded, "--output", str(folder / run)), leaves=(f"{run}/report.json",))

    return Stage(part=part, step=step, judge=lambda record: judge_runs(folder, name, record), endless=not is_whole)


def _faults(folder: Path, rows: Names, *, seed: int, jobs: int) -> Stage:
    """The kill matrix in batches of rows drawn by the seed, so that a stop costs one batch.

    The cases are the profile's own: other ones would miss a fault now and then, one run in a hundred each.
    """
    return Stage(
        part=_FAULTS,
        step=_batched(folder, "faults", rows, seed=seed, jobs=jobs),
        judge=lambda record: judge_faults(folder, record, names=rows),
    )


def _odds(folder: Path, faults: Names, *, seed: int, jobs: int) -> Stage:
    return Stage(
        part=_ODDS,
        step=_batched(folder, "odds", faults, seed=seed, jobs=jobs),
        judge=lambda record: judge_odds(folder, record),
    )


def _peers(folder: Path, jobs: int) -> Stage:
    """Every public model on the same cases each night, so that a change is the model's."""
    words = ("peers", "--jobs", str(jobs), "--output", str(folder / "peers"))
    step = Step(command=(*HARNESS, *words), leaves=("peers/peers.json",))
    return Stage(
        part=_PEERS,
        step=lambda number: None if number else step,
        judge=lambda record: judge_peers(folder, record),
    )


def _batched(folder: Path, command: str, names: Names, *, seed: int, jobs: int) -> Callable[[int], Step | None]:
    def step(number: int) -> Step | None:
        shuffled = random.Random(f"{seed} {command}").sample(names(), k=len(names()))
        if not (batch := shuffled[number * _BATCH : (number + 1) * _BATCH]):
            return None
        file = f"{command}/{number + 1:04}.json"
        only = [word for name in batch for word in ("--only", name)]
        words = (command, "--jobs", str(jobs), "--output", str(folder / file), *only)
        return Step(command=(*HARNESS, *words), leaves=(file,))

    return step


def _absent(name: str, reason: str) -> Stage:
    return Stage(
        part=Part(name=name, weight=0, least_s=1),
        missing=reason,
        step=lambda _: None,
        judge=lambda _: Judged(verdict=SILENT, sentence=reason),
    )
