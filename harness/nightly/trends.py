"""What many nights say of one figure: whether it rises, and whether a test is a flake."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

WINDOW = 90
"""Valid nights that a trend looks back."""
FEWEST = 8
"""Fewer nights show no trend."""
SURE = 3.0
"""Standard deviations of Mann and Kendall's statistic: figures without a trend exceed it once in 740 times."""
FACTOR = 1.5
"""How much the newest third of the nights has to lie above the oldest one."""


@dataclass(frozen=True, kw_only=True)
class Rise:
    """A figure that rises from night to night. first, last: medians of the oldest and the newest third."""

    name: str
    first: float
    last: float
    z: float
    nights: int

    @property
    def factor(self) -> float:
        """How many times the first the last is."""
        return self.last / self.first if self.first else np.inf


def rises(names: list[str], values: Floats) -> list[Rise]:
    """Which of the figures [nights, figures] rise, the steepest first; NaN is a night without the figure."""
    values = values[-WINDOW:]
    found = []
    for number, name in enumerate(names):
        told = values[:, number]
        told = told[~np.isnan(told)]
        if len(told) < FEWEST:
            continue
        third = len(told) // 3
        first, last = float(np.median(told[:third])), float(np.median(told[-third:]))
        # The medians come first: they cost nothing, and nearly no figure passes them.
        if last > FACTOR * first and (z := mann_kendall(told)) > SURE:
            found.append(Rise(name=name, first=first, last=last, z=z, nights=len(told)))
    return sorted(found, key=lambda rise: -rise.factor)


def mann_kendall(values: Floats) -> float:
    """Mann and Kendall's test of a trend in standard deviations: rises less falls over all pairs (Mann 1945).

    No distribution of the values is supposed, and one outlier changes it by little.
    """
    count = len(values)
    pairs = float(np.sign(values[None, :] - values[:, None])[np.triu_indices(count, 1)].sum())
    deviation = np.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return float((pairs - np.sign(pairs)) / deviation)


@dataclass(frozen=True, kw_only=True)
class Course:
    """What a test did over some nights. changes: how often it went from pass to red or back.

    kind: "red" since a night, "flake", or "fixed" since a night. since: the number of that night.
    """

    test: int
    kind: str
    changes: int
    since: int


def courses(red: npt.NDArray[np.bool_], passed: npt.NDArray[np.bool_], again: npt.NDArray[np.bool_]) -> list[Course]:
    """The courses of tests whose outcome changed over the nights [nights, tests], the gravest first.

    A night on which a test neither passed nor was red says nothing of it. again: it passed, but not at once, which is a
    change and back.
    """
    changing = np.flatnonzero((red.any(axis=0) & passed.any(axis=0)) | again.any(axis=0))
    found = [_course(int(test), red[:, test], passed[:, test], again[:, test]) for test in changing]
    order = {"red": 0, "flake": 1, "fixed": 2}
    return sorted(found, key=lambda course: (order[course.kind], -course.changes, course.test))


def _course(
    test: int, red: npt.NDArray[np.bool_], passed: npt.NDArray[np.bool_], again: npt.NDArray[np.bool_]
) -> Course:
    ran = np.flatnonzero(red | passed)
    states = red[ran]
    turns = np.flatnonzero(states[1:] != states[:-1]) + 1
    changes = len(turns) + 2 * int(again.sum())
    since = int(ran[turns[-1]]) if len(turns) else int(ran[0])
    if changes > 1:
        return Course(test=test, kind="flake", changes=changes, since=since)
    return Course(test=test, kind="red" if states[-1] else "fixed", changes=changes, since=since)
