"""What a night has done so far: `night.json`, written anew after each step, so that a night can go on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from harness.atomic import write_json
from harness.errors import UsageError

SCHEMA_VERSION = 1
NAME = "night.json"

DONE, STOPPED, LEFT_OUT = "done", "stopped", "left out"
PASSED, FAILED, UNDECIDED, SILENT = "passed", "failed", "undecided", ""
"""Verdicts of stages; one that was left out is silent, one that was stopped before it could say anything undecided."""


@dataclass(frozen=True, kw_only=True)
class StageRecord:
    """What became of a stage. While it is open, the night goes on with it.

    share_s: the seconds that it was given, None without a budget. codes: what its steps returned, of those that are
    complete. step_s: the longest of them. files: what it left, from the night's folder.
    """

    name: str
    status: str = STOPPED
    reason: str = "the night was interrupted in it"
    seconds: float = 0.0
    files: tuple[str, ...] = ()
    open: bool = True
    share_s: float | None = None
    codes: tuple[int, ...] = ()
    step_s: float = 0.0
    verdict: str = SILENT

    @property
    def left_s(self) -> float | None:
        """What is left of its share."""
        return None if self.share_s is None else self.share_s - self.seconds


@dataclass(frozen=True, kw_only=True)
class NightRecord:
    """A night's facts and its stages, in the order in which they began."""

    started: str
    seed: int
    commit: str
    dirty: bool
    versions: Mapping[str, str]
    device: str
    budget_s: float | None
    ended: str | None = None
    key: str = ""
    shards: tuple[str, ...] = ()
    validity: str = "valid"
    stages: tuple[StageRecord, ...] = ()

    @property
    def left_s(self) -> float | None:
        """What is left of the budget; None without one."""
        return None if self.budget_s is None else self.budget_s - sum(stage.seconds for stage in self.stages)

    def stage(self, name: str) -> StageRecord | None:
        """A stage that has begun."""
        return next((stage for stage in self.stages if stage.name == name), None)

    def having(self, stage: StageRecord) -> NightRecord:
        """The night with this record of a stage in place of the one before."""
        if self.stage(stage.name) is None:
            return replace(self, stages=(*self.stages, stage))
        return replace(self, stages=tuple(stage if each.name == stage.name else each for each in self.stages))

    @property
    def exit_code(self) -> int:
        """0 nothing gated in what ran; 1 something is; 3 something, or everything, could not be decided."""
        verdicts = {stage.verdict for stage in self.stages}
        if FAILED in verdicts:
            return 1
        return 0 if PASSED in verdicts and UNDECIDED not in verdicts and self.validity == "valid" else 3

    def write(self, folder: Path) -> None:
        """Write `night.json`, whole or not at all."""
        write_json(folder / NAME, {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(self)})


def read_record(folder: Path) -> NightRecord:
    """The record in a night's folder; raises UsageError if there is none."""
    path = folder / NAME
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.pop("schema_version") != SCHEMA_VERSION:
            raise ValueError("another schema_version")
        stages = tuple(_stage(stage) for stage in data.pop("stages"))
        return NightRecord(**{**data, "shards": tuple(data["shards"])}, stages=stages)
    except (OSError, ValueError, KeyError, TypeError) as error:
        got = getattr(error, "strerror", None) or str(error)
        raise UsageError(got=got, expected="a night of `harness nightly`", where=str(path)) from error


def _stage(data: dict[str, Any]) -> StageRecord:
    return StageRecord(**{**data, "files": tuple(data["files"]), "codes": tuple(data["codes"])})


def new_folder(nights: Path) -> Path:
    """Make the folder of a night that begins now; its name is its time in UTC."""
    folder = nights / datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise UsageError(got=f"{error.strerror}", expected="a new folder", where=str(error.filename)) from error
    return folder


def newest_unfinished(nights: Path) -> Path:
    """The folder of the last night that has no end; raises UsageError if every one has."""
    for folder in sorted((path.parent for path in nights.glob(f"*/{NAME}")), reverse=True):
        if read_record(folder).ended is None:
            return folder
    raise UsageError(got="no night without an end", expected="one to resume", where=str(nights))


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Nobody else runs this night meanwhile; raises UsageError if somebody does."""
    lock = FileLock(folder / "night.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise UsageError(got="a night that is being run", expected="one at a time", where=str(folder)) from None
    try:
        yield
    finally:
        lock.release()
