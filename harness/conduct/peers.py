"""Asks public models: a `harness run` for each, in its own process, as many at once as there are jobs."""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from harness.conduct.child import run_child
from harness.peers.environment import Environment, version_in
from harness.peers.known import KnownPeer
from harness.peers.result import PeerRow, PeerTable, cells_of
from harness.peers.verdicts import compared
from harness.report import Report

_WHOLE = (0, 1, 3)
"""Exit codes of a run that came to its end."""


def ask(
    peers: Sequence[KnownPeer],
    *,
    folder: Path,
    environments: Path,
    baselines: Path,
    properties: Sequence[str],
    profile: str,
    jobs: int,
    seed: int | None = None,
    done: Callable[[PeerRow], None] = lambda _: None,
) -> PeerTable:
    """The table of these peers; each run's files are left in `folder` under the peer's name.

    A peer that is not installed is a row that says so, with the command that helps. `done` is called with each peer's
    row as it comes.
    """
    began, used, started = time.perf_counter(), _cpu_seconds(), datetime.now(UTC)
    rows = [_row(peer, Environment(peer.environment, environments) if peer.environment else None) for peer in peers]
    # Those with an environment of their own take longest, so they come first and none of them is left alone at the end.
    numbers = sorted(range(len(peers)), key=lambda number: not peers[number].environment)
    at_once = max(1, min(jobs, sum(not row.missing for row in rows)))
    stopping = threading.Event()

    def asked(number: int) -> PeerRow:
        row, own = rows[number], folder / peers[number].name
        if row.missing:
            return row
        command = _command(peers[number], environments, properties, profile, jobs // at_once, seed)
        row = _asked(row, command, own, properties, stopping)
        return compared(row, run=own / "junit.xml", baselines=baselines)

    with ThreadPoolExecutor(at_once) as threads:
        futures = {threads.submit(asked, number): number for number in numbers}
        try:
            for future in as_completed(futures):
                row = rows[futures[future]] = future.result()
                done(row)
        except BaseException:
            stopping.set()
            raise
    return PeerTable(
        properties=tuple(properties),
        rows=tuple(rows),
        started=started.isoformat(timespec="seconds"),
        seconds=time.perf_counter() - began,
        cpu_seconds=_cpu_seconds() - used,
        jobs=jobs,
    )


def subject_of(peer: KnownPeer, environments: Path) -> str:
    """What `--subject` says to ask it: the adapter itself, or a worker in its environment."""
    if not peer.environment:
        return peer.factory
    return f"worker:{Environment(peer.environment, environments).python}:{peer.factory}"


def _command(
    peer: KnownPeer, environments: Path, properties: Sequence[str], profile: str, jobs: int, seed: int | None
) -> list[str]:
    words = ["--subject", subject_of(peer, environments), "--profile", profile, "--jobs", str(jobs)]
    words += [] if seed is None else ["--seed", str(seed)]
    return [sys.executable, "-m", "harness", "run", *words, *(w for name in properties for w in ("--only", name))]


def _row(peer: KnownPeer, environment: Environment | None) -> PeerRow:
    version = version_in(sys.executable, peer.package) if environment is None else environment.version(peer.package)
    missing = ""
    if version is None:
        help_ = f"pip install {peer.package}" if environment is None else environment.command
        missing = f"{peer.package} is not installed; {help_}"
    return PeerRow(
        name=peer.name, about=peer.about, package=peer.package, version=version or "", cells={}, missing=missing
    )


def _asked(
    row: PeerRow, command: Sequence[str], folder: Path, properties: Sequence[str], stopping: threading.Event
) -> PeerRow:
    def look(_: float) -> None:
        if stopping.is_set():
            raise _StoppedError

    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.txt"
    log.unlink(missing_ok=True)
    words = [*command, "--output", str(folder)]
    ended = run_child(words, lock=folder / "lock", log=log, limit_s=None, beat=look)
    row = replace(row, seconds=ended.seconds)
    if ended.code not in _WHOLE:
        said = (log.read_text(encoding="utf-8").strip().splitlines() or [f"it ended with {ended.code}"])[-1]
        return replace(row, missing=f"it could not be asked: {said}")
    report = Report.from_json(json.loads((folder / "report.json").read_text(encoding="utf-8")))
    return replace(row, cells=cells_of(report, properties))


class _StoppedError(Exception):
    """The table is not wanted any more; whoever stopped it has the reason."""


def _cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found)
