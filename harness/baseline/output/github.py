"""A comparison as GitHub's workflow commands: annotations beside the lines of the tests.

GitHub keeps ten annotations of each kind a step; the tenth says how many are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.baseline.changes import Level
from harness.baseline.diff import Diff, Entry
from harness.baseline.output.wording import headline, said, verdict

MOST_OF_A_KIND = 10
_MESSAGE_CHARACTERS = 1000


def render_github(diff: Diff, *, show: int) -> str:
    """Errors for what gates or makes the run invalid, warnings for the rest that is worth one, a notice to sum up."""
    most = min(show, MOST_OF_A_KIND)
    errors = [_command("error", "The run cannot be judged", problem.sentence) for problem in diff.problems]
    errors += [_annotation("error", entry, diff) for entry in diff.entries if entry.gated]
    warnings = [
        _annotation("warning", entry, diff)
        for entry in diff.entries
        if not entry.gated and entry.change.level is Level.WARN
    ]
    summary = _command("notice", "diff-baseline", f"{headline(diff)}; {verdict(diff)}")
    return "\n".join([*_cut("error", errors, most), *_cut("warning", warnings, most), summary]) + "\n"


def _annotation(kind: str, entry: Entry, diff: Diff) -> str:
    message = "\n".join([entry.id, *said(entry, diff), *([entry.command] if entry.command else [])])
    result = entry.new or entry.base
    place = {}
    if result is not None and result.file is not None:
        place = {"file": result.file} | ({} if result.line is None else {"line": str(result.line)})
    return _command(kind, entry.change.value.title, message, **place)


def _cut(kind: str, commands: Sequence[str], most: int) -> list[str]:
    if len(commands) <= most:
        return list(commands)
    kept = max(most - 1, 0)
    return [*commands[:kept], _command(kind, "diff-baseline", f"and {len(commands) - kept} more")]


def _command(kind: str, title: str, message: str, *, file: str | None = None, line: str | None = None) -> str:
    properties = {"file": file, "line": line, "title": title}
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items() if value is not None)
    return f"::{kind} {listed}::{_data(message[:_MESSAGE_CHARACTERS])}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
