"""A comparison as Markdown for a step summary, a check or a comment on GitHub.

All that comes from tests stands in code spans, where `|`, `@name`, `#123`, HTML and emphasis mean nothing. A check's
text may have 65,535 bytes and a step summary 1 MiB, above which GitHub drops it whole; the smaller bound is kept.
"""

from __future__ import annotations

import re

from harness.baseline.changes import Level
from harness.baseline.diff import Diff
from harness.baseline.output.wording import Group, context, cut, groups, headline, more, said, verdict

MOST_BYTES = 65_535
_SPAN_CHARACTERS = 500
_BACKTICKS = re.compile("`+")


def render_markdown(diff: Diff, *, show: int) -> str:
    """The comparison within MOST_BYTES; longer lists are shown shorter until it fits."""
    while True:
        text = _document(diff, show)
        if len(text.encode("utf-8", "replace")) <= MOST_BYTES or show == 0:
            return text
        show //= 2


def _document(diff: Diff, show: int) -> str:
    mark = {0: "Passed", 1: "Failed", 3: "Undecided"}[diff.exit_code]
    lines = [f"## {mark}: {_headline(diff)}", "", f"{code(context(diff))}; {verdict(diff)}."]
    if diff.problems:
        sentences = [problem.sentence for problem in diff.problems]
        lines += ["", "### Why", "", *(f"- {code(sentence)}" for sentence in cut(sentences, show=max(show, 1)))]
    for group in groups(diff, show=show):
        lines += ["", *_group(group, diff)]
    if diff.notes:
        lines += ["", "### Notes", "", *(f"- {code(note)}" for note in cut(diff.notes, show=show))]
    return "\n".join(lines) + "\n"


def _headline(diff: Diff) -> str:
    """Counts are our own words; the sentence of a problem may hold names of others."""
    return code(headline(diff)) if diff.problems else headline(diff)


def _group(group: Group, diff: Diff) -> list[str]:
    lines = [f"### {group.title} ({group.total:,}{', gates' if group.gated else ''})", ""]
    if group.change.level in (Level.INFO, Level.OK) and group.entries:
        lines += ["<details><summary>names</summary>", ""]
    for entry in group.entries:
        lines.append(f"- {code(entry.id)}")
        lines += [f"  - {code(sentence)}" for sentence in said(entry, diff)]
        if group.gated and entry.command:
            lines.append(f"  - {code(entry.command)}")
    if group.hidden:
        lines.append(f"- {more(group)}")
    if group.change.level in (Level.INFO, Level.OK) and group.entries:
        lines += ["", "</details>"]
    return lines


def code(text: str) -> str:
    """A code span: fenced by more backticks than the text has in a row, and on one line."""
    text = " ".join(text.split()) or " "
    if len(text) > _SPAN_CHARACTERS:
        text = text[:_SPAN_CHARACTERS] + "..."
    fence = "`" * (max((len(run) for run in _BACKTICKS.findall(text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"
