"""The words that every format shares: the headline, the groups, and what is said of one test."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from harness.baseline.changes import Change, Level
from harness.baseline.diff import Diff, Entry
from harness.baseline.identity import node_id


@dataclass(frozen=True, kw_only=True)
class Group:
    """The tests of one class; hidden is how many a list of limited length leaves out."""

    title: str
    change: Change
    entries: tuple[Entry, ...]
    hidden: int
    gated: bool

    @property
    def total(self) -> int:
        """How many tests the class has."""
        return len(self.entries) + self.hidden


def headline(diff: Diff) -> str:
    """The one sentence: how many regressions, then every other class that is not empty, gravest first."""
    if diff.problems:
        more = f" (and {len(diff.problems) - 1} more)" if diff.problems[1:] else ""
        return f"Nothing can be decided: {diff.problems[0].sentence}{more}"
    counts = diff.counts()
    words = [(counts[change], change.value) for change in Change if counts[change] or change is Change.REGRESSION]
    return ", ".join(f"{count} {kind.one if count == 1 else kind.many}" for count, kind in words)


def verdict(diff: Diff) -> str:
    """What the exit code means here."""
    if diff.problems:
        return "exit 3: the run is invalid, partial or not comparable"
    gated = len(diff.gated)
    if not gated:
        return "exit 0: nothing gates"
    return f"exit 1: {gated} {'change gates' if gated == 1 else 'changes gate'}"


def context(diff: Diff) -> str:
    """What was compared with what."""
    base = diff.baseline
    known = ", ".join(part for part in (base.commit, base.date) if part)
    sources = diff.run.sources
    run = sources[0] if len(sources) == 1 else f"{len(sources)} files"
    tests = f"{len(diff.run.results):,} tests of {run}"
    return f"{tests} against {len(base.results):,} of {base.source}{f' ({known})' if known else ''}"


def groups(diff: Diff, *, show: int) -> list[Group]:
    """The classes that are not empty, gravest first; a rename is listed under its old name."""
    found: dict[Change, list[Entry]] = {}
    for entry in diff.entries:
        if entry.change is not Change.RENAMED or entry.base is not None:
            found.setdefault(entry.change, []).append(entry)
    return [
        Group(
            title=change.value.title,
            change=change,
            entries=tuple(entries[:show]),
            hidden=max(len(entries) - show, 0),
            gated=entries[0].gated,
        )
        for change, entries in found.items()
    ]


def said(entry: Entry, diff: Diff) -> list[str]:
    """What is to be said of one test besides its id; nothing where the class says it all."""
    lines = []
    if entry.change is Change.RENAMED:
        lines.append(f"now {entry.other}?")
    elif entry.change is Change.CHANGED_REASON and entry.base and entry.new:
        lines += [f"was {_why(entry.base.reason)}", f"now {_why(entry.new.reason)}"]
    elif entry.new is not None and entry.new.message and entry.change.level is not Level.INFO:
        lines.append(f"{entry.new.outcome.value}: {entry.new.message}")
    elif entry.base is not None and entry.base.reason and entry.change.level is Level.GATE:
        lines.append(f"was {entry.base.reason}")
    blessing = diff.baseline.blessings.get(entry.id)
    if blessing is not None and (blessing.issue or blessing.reason):
        parts = (blessing.reason, blessing.issue, blessing.since and f"since {blessing.since}")
        lines.append(f"recorded: {', '.join(part for part in parts if part)}")
    return [*lines, entry.note] if entry.note else lines


def commands(diff: Diff, *, show: int) -> str | None:
    """One command that runs the regressions again, as many as are shown; None with fewer than two."""
    nodes = [node_id(entry.id) for entry in diff.entries if entry.change is Change.REGRESSION][:show]
    quoted = [shlex.quote(node) for node in dict.fromkeys(nodes) if node is not None]
    return f"pytest {' '.join(quoted)}" if len(quoted) > 1 else None


def blessing(diff: Diff) -> str | None:
    """The command that makes this run the baseline; None if nothing gates, or if no recorded baseline was compared."""
    if diff.exit_code != 1 or not diff.baseline.recorded:
        return None
    words = ["harness", "record-baseline", *diff.run.sources, "--to", diff.baseline.source, "--reason"]
    return f"{shlex.join(words)} '...'"


def more(group: Group) -> str:
    """`and 31 more`, or nothing."""
    return f"and {group.hidden:,} more" if group.hidden else ""


def cut(items: tuple[str, ...] | list[str], *, show: int) -> list[str]:
    """The first sentences, and how many are left out."""
    return [*items[:show], *([f"and {len(items) - show} more"] if len(items) > show else [])]


def _why(reason: str) -> str:
    return reason or "without a reason"
