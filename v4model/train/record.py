"""What a step leaves: one JSON line, written as the step ends."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from v4model.errors import DataError

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One step, counted from 0.

    loss is what is differentiated; main, mtp (by depth), balance and kl are its terms. grad_norm: before clipping.
    real_tokens and supervised_tokens: over all replicas. seconds: of the whole step. peak_bytes: of the device so far,
    of the fullest rank, None on a CPU. without_hca: packs of the step without a complete HCA window. cp_bytes and
    ep_bytes: sent over context and over expert groups, by all ranks; 0 in records that do not say it.
    """

    step: int
    loss: float
    main: float
    mtp: tuple[float, ...]
    balance: float
    kl: float
    grad_norm: float
    learning_rate: float
    real_tokens: int
    supervised_tokens: int
    packs: tuple[int, ...]
    without_hca: int
    seconds: float
    peak_bytes: int | None = None
    cp_bytes: int = 0
    ep_bytes: int = 0

    @property
    def is_finite(self) -> bool:
        """Whether the step can be taken."""
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)


class RecordLog:
    """The JSON lines of a run; what is there of steps that are done again is taken away first."""

    def __init__(self, path: Path, *, first_step: int) -> None:
        kept = [record for record in read_records(path) if record.step < first_step] if path.exists() else []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w", encoding="utf-8")
        except OSError as error:
            raise DataError(got=str(error.strerror), expected="a file that can be written", where=str(path)) from error
        for record in kept:
            self.append(record)

    def append(self, record: StepRecord) -> None:
        """Write one step and flush it."""
        self._file.write(json.dumps({"schema": SCHEMA, **_plain(record)}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """The file is complete."""
        self._file.close()


def read_records(path: Path) -> list[StepRecord]:
    """The steps of a run in order; a last line that a killed run left half-written is not one.

    Raises:
        DataError: a file that cannot be read, or a line that is no record.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(got=str(error), expected="a run's JSON lines", where=str(path)) from error
    return list(_parsed([line for line in lines if line.endswith("\n")], path))


def _parsed(lines: list[str], path: Path) -> Iterator[StepRecord]:
    for number, line in enumerate(lines, 1):
        try:
            content: dict[str, Any] = json.loads(line)
            if content.pop("schema") != SCHEMA:
                raise ValueError("another schema")
            numbers = {name: math.nan if content[name] is None else content[name] for name in ("loss", "grad_norm")}
            lists = {name: tuple(content[name]) for name in ("mtp", "packs")}
            yield StepRecord(**{**content, **numbers, **lists})
        except (ValueError, KeyError, TypeError) as error:
            where = f"{path}, line {number}"
            raise DataError(got=f"no record ({error})", expected=f"schema {SCHEMA}", where=where) from error


def _plain(record: StepRecord) -> dict[str, Any]:
    """JSON has no NaN; a number that is none is null."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        return [plain(each) for each in value] if isinstance(value, tuple) else value

    return {name: plain(value) for name, value in asdict(record).items()}
