"""Findings of a check-up as lines of 80 columns, as plain values, and as an exit code."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from harness.checkup.steps import Finding, Status

SCHEMA_VERSION = 1
_COLUMNS = 80
_INDENT = " " * 9


def lines(finding: Finding) -> Iterator[str]:
    """ "ok       parameters: 188 leaves", as many lines as it takes."""
    first = f"{finding.status.value:<{len(_INDENT)}}{finding.step}: {finding.sentence}"
    yield from textwrap.wrap(first, _COLUMNS, subsequent_indent=_INDENT, break_on_hyphens=False)


def summary(findings: Sequence[Finding]) -> str:
    """The whole in one sentence."""
    counts = Counter(finding.status for finding in findings)
    if counts[Status.WRONG]:
        return f"{counts[Status.WRONG]} of {len(findings)} steps found something to change."
    told = [
        f"{counts[status]} {words}"
        for status, words in ((Status.LEFT_OUT, "left out as unsupported"), (Status.UNKNOWN, "unknown"))
        if counts[status]
    ]
    return f"Nothing to change in {len(findings)} steps{''.join(f', {part}' for part in told)}."


def exit_code(findings: Sequence[Finding]) -> int:
    """0 nothing to change, 1 something is wrong, 3 the subject could not be asked at all."""
    statuses = {finding.step: finding.status for finding in findings}
    if Status.WRONG in statuses.values():
        return 1
    return 3 if statuses["build"] is Status.UNKNOWN else 0


def to_json(findings: Sequence[Finding], *, subject: str) -> dict[str, Any]:
    """The findings as plain values, with the schema's version."""
    return {
        "schema_version": SCHEMA_VERSION,
        "subject": subject,
        "exit_code": exit_code(findings),
        "findings": [
            {"step": finding.step, "status": finding.status.value, "sentence": finding.sentence} for finding in findings
        ],
    }
