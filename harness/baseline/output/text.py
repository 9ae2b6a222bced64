"""A comparison for a terminal of 80 columns; ids and commands stay on one line, so that they can be copied."""

from __future__ import annotations

import textwrap

from harness.baseline.changes import Change, Level
from harness.baseline.diff import Diff
from harness.baseline.output.wording import (
    Group,
    blessing,
    commands,
    context,
    cut,
    groups,
    headline,
    more,
    said,
    verdict,
)

WIDTH = 80


def render_text(diff: Diff, *, show: int, conclusion: str | None = None) -> str:
    """The headline, what was compared, why it cannot be if so, then the groups by gravity.

    conclusion stands where the exit code's meaning does otherwise.
    """
    blocks = [_wrapped(headline(diff)), _wrapped(f"{context(diff)}; {conclusion or verdict(diff)}")]
    if diff.problems:
        sentences = [problem.sentence for problem in diff.problems]
        blocks.append("\n".join(["WHY", *(_item(sentence) for sentence in cut(sentences, show=show))]))
        if diff.entries:
            blocks.append("Of the tests that did run:")
    blocks += [_group(group, diff) for group in groups(diff, show=show)]
    if command := commands(diff, show=show):
        blocks.append(f"The regressions again:\n  {command}")
    if conclusion is None and (command := blessing(diff)):
        blocks.append(f"If this is how main shall be:\n  {command}")
    if diff.notes:
        blocks.append("\n".join(["NOTES", *(_item(note) for note in cut(diff.notes, show=show))]))
    return "\n\n".join(blocks) + "\n"


def _group(group: Group, diff: Diff) -> str:
    lines = [f"{group.title} ({group.total:,}{', gates' if group.gated else ''})"]
    for entry in group.entries:
        lines.append(f"  {entry.id}")
        lines += [_wrapped(sentence, indent="    ") for sentence in said(entry, diff)]
        if entry.command and (group.change.level is Level.GATE or group.gated) and entry.change is not Change.FIXED:
            lines.append(f"    {entry.command}")
    if group.hidden:
        lines.append(f"  {more(group)}")
    return "\n".join(lines)


def _item(sentence: str) -> str:
    return textwrap.fill(sentence, WIDTH, initial_indent="  - ", subsequent_indent="    ", break_long_words=False)


def _wrapped(sentence: str, indent: str = "") -> str:
    return textwrap.fill(
        sentence,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
