"""Makes a run the baseline, once it is fit to be one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path

from harness.baseline.diff import Diff, compare
from harness.baseline.outcomes import UNREAL
from harness.baseline.run import Problem, Result, Run
from harness.baseline.store import (
    EXCEPTIONS,
    Baseline,
    Blessing,
    baseline_of,
    is_plain_pass,
    read_baseline,
    render,
    write_baseline,
)
from harness.baseline.validity import Limits

_NAMES_SHOWN = 3


def existing_baseline(folder: Path, *, key: str | None) -> Baseline:
    """What the folder holds; an empty baseline if nothing was recorded there yet.

    Raises BaselineError if it holds something else.
    """
    if (folder / EXCEPTIONS).exists():
        return read_baseline(folder)
    return Baseline(results={}, source=str(folder), key=key)


def prepare(run: Run, base: Baseline, *, today: date, key: str | None, limits: Limits) -> Diff:
    """The difference that recording will bless, with every reason against it as a problem."""
    limits = replace(limits, oldest_days=None)  # an old baseline is no reason against a new one
    found = compare(base, run, today=today, key=key, limits=limits)
    unreal = sorted(i for i, result in run.results.items() if result.outcome in UNREAL)
    if unreal:
        names = ", ".join(f"{i} ({run.results[i].outcome.value})" for i in unreal[:_NAMES_SHOWN])
        more = f" and {len(unreal) - _NAMES_SHOWN} more" if unreal[_NAMES_SHOWN:] else ""
        sentence = f"no outcome to keep, but an accident: {names}{more}"
        found = replace(found, problems=(*found.problems, Problem(kind="unreal", sentence=sentence)))
    return found


def record(run: Run, base: Baseline, folder: Path, *, key: str | None, reason: str, issue: str) -> bool:
    """Write the run as the baseline and say whether anything changed.

    A test that is not a plain pass and was so before, for the same reason, keeps its reason, issue and date.
    """
    fresh = baseline_of(run, key=key)
    since = fresh.date
    blessings = {
        identity: _blessing(result, base.results, base.blessings, Blessing(reason=reason, issue=issue, since=since))
        for identity, result in run.results.items()
        if not is_plain_pass(result)
    }
    fresh = replace(fresh, blessings=blessings)
    if base.results and render(fresh) == render(base):
        return False
    write_baseline(fresh, folder)
    return True


def _blessing(result: Result, before: Mapping[str, Result], kept: Mapping[str, Blessing], new: Blessing) -> Blessing:
    old = before.get(result.id)
    same = old is not None and (old.outcome, old.reason, old.repeated) == (
        result.outcome,
        result.reason,
        result.repeated,
    )
    return kept.get(result.id, new) if same else new
