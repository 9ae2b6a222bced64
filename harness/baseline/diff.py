"""The comparison of a run with a baseline: one class for each test, and what follows from it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date

from harness.baseline.changes import Change, Level, change_between
from harness.baseline.flakes import Flake
from harness.baseline.identity import class_id, node_id
from harness.baseline.outcomes import LOST, RED, Outcome
from harness.baseline.reading import without_files
from harness.baseline.renames import find_renames
from harness.baseline.run import Problem, Result, Run
from harness.baseline.store import Baseline, Blessing, is_plain_pass
from harness.baseline.validity import Limits, problems_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """What happened to one test; other is the second name of a rename, note what else is to be said."""

    id: str
    change: Change
    base: Result | None
    new: Result | None
    gated: bool = False
    other: str | None = None
    note: str = ""

    @property
    def command(self) -> str | None:
        """The command that runs the test again; None when it cannot be told from the id."""
        node = node_id(self.id)
        return None if node is None or self.new is None else f"pytest {shlex.quote(node)}"


@dataclass(frozen=True, kw_only=True)
class Diff:
    """Every test that is not as before, gravest class first, and why the run cannot be judged if so."""

    entries: tuple[Entry, ...]
    same: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    baseline: Baseline
    run: Run

    @property
    def gated(self) -> tuple[Entry, ...]:
        """What fails the comparison."""
        return tuple(entry for entry in self.entries if entry.gated)

    @property
    def exit_code(self) -> int:
        """0 nothing gated; 1 something gated; 3 the run cannot be judged."""
        return 3 if self.problems else int(bool(self.gated))

    def counts(self) -> Counter[Change]:
        """How many tests fell into each class; a rename counts once for its two names."""
        counted = Counter(entry.change for entry in self.entries)
        counted[Change.RENAMED] //= 2
        return +counted


def compare(
    base: Baseline,
    run: Run,
    *,
    today: date,
    key: str | None = None,
    limits: Limits | None = None,
    fail_on: Collection[Change] = (),
    rerun: Run | None = None,
) -> Diff:
    """Compare a run with a baseline.

    fail_on are classes that gate besides those that always do. rerun holds a second attempt at the regressions; for any
    other test it says nothing. When the run cannot be judged, absence is not reported: what did run still is.
    """
    base, run = _same_ids(base, run)
    entries = [_entry(base, run, identity) for identity in _not_plain(base, run)]
    changed = _renamed([entry for entry in entries if entry.change is not Change.SAME])
    same = len(base.results.keys() | run.results.keys()) - len(changed)
    missing = sum(entry.new is None and entry.change is not Change.RENAMED for entry in changed)
    limits = limits or Limits()
    problems = problems_of(run, base, missing=missing, key=key, limits=limits, today=today)
    if problems:
        changed = [entry for entry in changed if entry.new is not None and entry.other is None]
    again = _results_again(rerun, run)
    changed = [_flake(entry, base.flakes, again, today) for entry in changed]
    gates = {change for change in Change if change.level is Level.GATE} | set(fail_on)
    changed = [replace(entry, gated=entry.change in gates) for entry in changed]
    order = {change: position for position, change in enumerate(Change)}
    return Diff(
        entries=tuple(sorted(changed, key=lambda entry: (order[entry.change], entry.id))),
        same=same,
        problems=problems,
        notes=(*run.notes, *_stale(base, today), *_unread(rerun)),
        baseline=base,
        run=run,
    )


def _same_ids(base: Baseline, run: Run) -> tuple[Baseline, Run]:
    """Both sides under ids of one kind: with files only if both have them."""
    if base.has_files and not run.has_files:
        reduced = without_files(Run(results=base.results, sources=()))
        flakes = {class_id(i): flake for i, flake in base.flakes.items()}
        blessings: dict[str, Blessing] = {class_id(i): blessing for i, blessing in base.blessings.items()}
        base = replace(base, results=reduced.results, has_files=False, flakes=flakes, blessings=blessings)
    return base, without_files(run) if run.has_files and not base.has_files else run


def _not_plain(base: Baseline, run: Run) -> list[str]:
    """The ids that are not a plain pass on both sides; nearly all are, and need no further look."""
    olds = base.results
    found = [
        identity
        for identity, new in run.results.items()
        if not (is_plain_pass(new) and (old := olds.get(identity)) is not None and is_plain_pass(old))
    ]
    return [*found, *(olds.keys() - run.results.keys())]


def _entry(base: Baseline, run: Run, identity: str) -> Entry:
    old, new = base.results.get(identity), run.results.get(identity)
    if new is None and run.skipped_modules:
        new = _skipped_with_its_module(identity, run.skipped_modules)
    return Entry(id=identity, change=change_between(old, new), base=old, new=new)


def _skipped_with_its_module(identity: str, modules: Mapping[str, str]) -> Result | None:
    """A test of a file that skipped itself as a whole is skipped, not removed."""
    classname = class_id(identity).partition("[")[0].rpartition("::")[0]
    parts = classname.split(".")
    for end in range(len(parts), 0, -1):
        if (module := ".".join(parts[:end])) in modules:
            why = f"{module} skipped itself: {modules[module]}"
            return Result(id=identity, outcome=Outcome.SKIP, message=why, fingerprints=("skip: with its module",))
    return None


def _renamed(entries: list[Entry]) -> list[Entry]:
    """Pairs of a plain pass that is gone and one that is new, where the names leave no other choice."""
    removed = [e.id for e in entries if e.change is Change.REMOVED and e.base and e.base.outcome is Outcome.PASS]
    added = [e.id for e in entries if e.change is Change.ADDED]
    renames = find_renames(removed, added)
    others = renames | {new: old for old, new in renames.items()}
    return [replace(e, change=Change.RENAMED, other=others[e.id]) if e.id in others else e for e in entries]


def _results_again(rerun: Run | None, run: Run) -> Mapping[str, Result]:
    if rerun is None:
        return {}
    return (without_files(rerun) if rerun.has_files and not run.has_files else rerun).results


def _unread(rerun: Run | None) -> Iterable[str]:
    """What is wrong with the second run; it is only an aid, so this is told and decides nothing."""
    return () if rerun is None else (f"the second run: {problem.sentence}" for problem in rerun.problems)


def _flake(entry: Entry, flakes: Mapping[str, Flake], again: Mapping[str, Result], today: date) -> Entry:
    """A regression or a fix of a listed test is a known flake, unless a second attempt failed too."""
    if entry.change not in (Change.REGRESSION, Change.FIXED):
        return entry
    second = again.get(entry.id) if entry.change is Change.REGRESSION else None
    note = "" if second is None else f"run again: {second.outcome.value}"
    flake = flakes.get(entry.id)
    listed = flake is not None and flake.expires >= today
    lost = entry.new is not None and entry.new.outcome in LOST
    if flake is not None and listed and not lost and (second is None or second.outcome not in RED):
        why = f"{flake.reason} ({flake.issue}, until {flake.expires})"
        return replace(entry, change=Change.KNOWN_FLAKE, note="; ".join(part for part in (note, why) if part))
    if second is not None and second.outcome is Outcome.PASS:
        note += "; flaky? Then list it with reason, issue and expiry"
    return replace(entry, note=note)


def _stale(base: Baseline, today: date) -> Iterable[str]:
    for flake in base.flakes.values():
        if flake.expires < today:
            yield f"the list of flakes: {flake.id} expired on {flake.expires} ({flake.issue})"
        if flake.id not in base.results:
            yield f"the list of flakes: {flake.id} is no test of the baseline"
