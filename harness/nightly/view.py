"""What every section looks at: the newest night with its details, the nights before it, and a baseline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from harness.baseline.run import Result
from harness.baseline.store import Baseline
from harness.nightly.night import Night
from harness.nightly.nights import Nights
from harness.nightly.summary import Summary, summarise


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """nights ends with the newest one. differs: the history keeps other figures of it than its folder now has."""

    night: Night
    nights: Nights
    baseline: Baseline | None = None
    differs: bool = False

    @property
    def summary(self) -> Summary:
        """The newest night."""
        return self.nights.summaries[-1]

    @property
    def results(self) -> dict[str, Result]:
        """The newest night's tests, with their messages."""
        return dict(self.night.suites.results) if self.night.suites else {}

    @cached_property
    def counted(self) -> list[int]:
        """Numbers of the nights that trends count: valid ones of the newest one's configuration."""
        return [n for n, each in enumerate(self.nights.summaries) if each.is_valid and each.key == self.summary.key]

    @cached_property
    def before(self) -> list[int]:
        """Of these the ones before the newest night."""
        return [number for number in self.counted if number != len(self.nights.summaries) - 1]

    @property
    def last(self) -> Summary | None:
        """The last night before the newest that counts."""
        return self.nights.summaries[self.before[-1]] if self.before else None

    @cached_property
    def last_results(self) -> dict[str, Result]:
        """The tests of that night; without messages."""
        return self.nights.results(self.before[-1]) if self.before else {}

    def why_not(self, number: int) -> str:
        """Why a night does not count; empty if it does."""
        if number in self.counted:
            return ""
        each = self.nights.summaries[number]
        return each.validity if not each.is_valid else f"another configuration: {each.key or 'not said'}"

    @cached_property
    def usual_millis(self) -> npt.NDArray[np.float64]:
        """[tests] the median duration on the nights before on which a test passed, NaN for none."""
        rows = self.before[-30:]
        if not rows:
            return np.full(len(self.nights.tests), np.nan)
        millis = np.where(self.nights.passed[rows], self.nights.millis[rows].astype(np.float64), np.nan)
        some = ~np.isnan(millis).all(axis=0)
        found = np.full(millis.shape[1], np.nan)
        found[some] = np.nanmedian(millis[:, some], axis=0)
        return found


def view_of(night: Night, nights: Nights, *, baseline: Baseline | None = None, differs: bool = False) -> View:
    """The view of a night after those before it; nights may hold it already, and later ones, which are left out."""
    results = night.suites.results if night.suites else {}
    summary = summarise(night)
    up_to = nights.plus(summary, results).until(summary)
    return View(night=night, nights=up_to, baseline=baseline, differs=differs)
