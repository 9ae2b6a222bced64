"""A comparison for machines: everything, uncut."""

from __future__ import annotations

import json
from typing import Any

from harness.baseline.changes import Change
from harness.baseline.diff import Diff, Entry
from harness.baseline.output.wording import headline
from harness.baseline.run import Result

SCHEMA_VERSION = 1


def render_json(diff: Diff, *, show: int) -> str:  # noqa: ARG001 - lists for machines are never cut
    """The comparison as JSON."""
    counts = diff.counts()
    data = {
        "schema_version": SCHEMA_VERSION,
        "headline": headline(diff),
        "exit_code": diff.exit_code,
        "problems": [{"kind": problem.kind, "sentence": problem.sentence} for problem in diff.problems],
        "notes": list(diff.notes),
        "counts": {change.word: counts[change] for change in Change if counts[change]} | {"same": diff.same},
        "changes": [_change(entry) for entry in diff.entries],
        "baseline": {
            "source": diff.baseline.source,
            "key": diff.baseline.key,
            "commit": diff.baseline.commit,
            "date": diff.baseline.date,
            "tests": len(diff.baseline.results),
        },
        "run": {
            "sources": list(diff.run.sources),
            "commit": diff.run.commit,
            "started": diff.run.started,
            "tests": len(diff.run.results),
        },
    }
    return json.dumps(data, indent=1) + "\n"


def _change(entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "change": entry.change.word,
        "gated": entry.gated,
        "base": _result(entry.base),
        "new": _result(entry.new),
        "renamed": entry.other,
        "note": entry.note,
        "command": entry.command,
    }


def _result(result: Result | None) -> dict[str, Any] | None:
    if result is None:
        return None
    return {
        "outcome": result.outcome.value,
        "fingerprint": result.reason,
        "message": result.message,
        "repeated": result.repeated,
        "file": result.file,
        "line": result.line,
    }
