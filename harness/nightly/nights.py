"""Many nights side by side: their summaries, and a row of outcomes and durations for each over the ids of all tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from harness.baseline.outcomes import IDLE, RED, Outcome
from harness.baseline.run import Result
from harness.nightly.summary import Summary

Bytes: TypeAlias = npt.NDArray[np.uint8]
Millis: TypeAlias = npt.NDArray[np.uint32]
Numbers: TypeAlias = npt.NDArray[np.unsignedinteger]
Flags: TypeAlias = npt.NDArray[np.bool_]

CODES = (
    Outcome.ABSENT,
    Outcome.PASS,
    Outcome.FAIL,
    Outcome.ERROR,
    Outcome.ERROR_SETUP,
    Outcome.ERROR_TEARDOWN,
    Outcome.CRASH,
    Outcome.TIMEOUT,
    Outcome.XFAIL,
    Outcome.XPASS_STRICT,
    Outcome.SKIP,
    Outcome.NOT_RUN,
    Outcome.COLLECTION_ERROR,
)
"""An outcome's number in stored histories: new ones go to the end."""

REPEATED = 128
"""Added to the number of a test that also ended otherwise, or was run again."""

_NUMBER = {outcome: number for number, outcome in enumerate(CODES)}
_RED: Flags = np.isin(np.arange(256) % REPEATED, [_NUMBER[outcome] for outcome in RED])
_IDLE: Flags = np.isin(np.arange(256) % REPEATED, [_NUMBER[outcome] for outcome in IDLE])
_PASSED: Flags = np.arange(256) % REPEATED == _NUMBER[Outcome.PASS]


def encoded(results: Iterable[Result]) -> tuple[Bytes, Millis]:
    """Outcomes and durations as numbers, in the order given."""
    told = list(results)
    codes = [_NUMBER[result.outcome] + REPEATED * result.repeated for result in told]
    millis = [min(round(result.seconds * 1000), 2**32 - 1) for result in told]
    return np.array(codes, dtype=np.uint8), np.array(millis, dtype=np.uint32)


def outcome_of(code: int) -> Outcome:
    """The outcome behind a number."""
    return CODES[code % REPEATED]


@dataclass(frozen=True, kw_only=True, eq=False)
class Nights:
    """Nights, oldest first. codes, millis [nights, tests]: outcome and duration of a test, 0 for what did not run."""

    summaries: tuple[Summary, ...]
    tests: tuple[str, ...]
    codes: Bytes
    millis: Millis

    @cached_property
    def red(self) -> Flags:
        """[nights, tests]: did not do what it should."""
        return _RED[self.codes]

    @cached_property
    def passed(self) -> Flags:
        """[nights, tests]: passed, perhaps not at once."""
        return _PASSED[self.codes]

    @cached_property
    def idle(self) -> Flags:
        """[nights, tests]: skipped or not run, and there."""
        return _IDLE[self.codes]

    def results(self, night: int) -> dict[str, Result]:
        """The tests of a night by id; the reasons of red ones are kept, their messages are not."""
        reasons, row = self.summaries[night].reasons, self.codes[night]
        return {
            (name := self.tests[test]): Result(
                id=name,
                outcome=outcome_of(int(row[test])),
                fingerprints=(reasons[name],) if reasons.get(name) else (),
                repeated=bool(row[test] >= REPEATED),
                seconds=float(self.millis[night, test]) / 1000,
            )
            for test in np.flatnonzero(row)
        }

    def until(self, last: Summary) -> Nights:
        """The nights up to and with one."""
        keep = [number for number, summary in enumerate(self.summaries) if in_time(summary) <= in_time(last)]
        return replace(
            self,
            summaries=tuple(self.summaries[number] for number in keep),
            codes=self.codes[keep],
            millis=self.millis[keep],
        )

    def plus(self, summary: Summary, results: Mapping[str, Result]) -> Nights:
        """The nights and one more, which takes the place of one with the same stamp."""
        others = [number for number, each in enumerate(self.summaries) if each.stamp != summary.stamp]
        known = {name: number for number, name in enumerate(self.tests)}
        new = [name for name in results if name not in known]
        tests = (*self.tests, *new)
        known |= {name: number for number, name in enumerate(tests)}
        codes, millis = encoded(results.values())
        columns = np.array([known[name] for name in results], dtype=np.intp)
        rows = [
            (self.summaries[n], _wide(self.codes[n], len(tests)), _wide(self.millis[n], len(tests))) for n in others
        ]
        rows.append((summary, _spread(codes, columns, len(tests)), _spread(millis, columns, len(tests))))
        rows.sort(key=lambda row: in_time(row[0]))
        return Nights(
            summaries=tuple(row[0] for row in rows),
            tests=tests,
            codes=np.stack([row[1] for row in rows]),
            millis=np.stack([row[2] for row in rows]),
        )


def in_time(summary: Summary) -> tuple[str, str]:
    """The order of nights: by when they began, in UTC."""
    return summary.started, summary.stamp


def no_nights() -> Nights:
    """The start of a history."""
    return Nights(
        summaries=(), tests=(), codes=np.zeros((0, 0), dtype=np.uint8), millis=np.zeros((0, 0), dtype=np.uint32)
    )


def _wide(row: Numbers, width: int) -> Numbers:
    return np.pad(row, (0, width - len(row)))


def _spread(values: Numbers, columns: Sequence[int] | npt.NDArray[np.intp], width: int) -> Numbers:
    row = np.zeros(width, dtype=values.dtype)
    row[columns] = values
    return row
