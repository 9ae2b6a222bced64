"""A baseline as files: text that is small in review.

`tests.txt` holds the sorted ids of all tests. `exceptions.txt` begins with a header (`# name: value`) and has one line
for each test that is not a plain pass: outcome, id, fingerprint, reason, issue, since, with tabs between them.
`flakes.txt` is written by people only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from harness.baseline.flakes import NAME as FLAKES
from harness.baseline.flakes import Flake, read_flakes
from harness.baseline.key import key_of
from harness.baseline.outcomes import Outcome
from harness.baseline.run import Result, Run
from harness.errors import BaselineError

TESTS = "tests.txt"
EXCEPTIONS = "exceptions.txt"

_FORMAT = "1"
_REPEATED = "repeated"
_HEADER = re.compile(r"# ([a-z_-]+): (.*)")
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
_OWN_FIELDS = ("format", "key", "commit", "date", "selection", "ids", "tests")


@dataclass(frozen=True, kw_only=True, slots=True)
class Blessing:
    """Why a test may be what it is: the reason given when it was recorded, an issue, and since when."""

    reason: str = ""
    issue: str = ""
    since: str = ""


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What a run is compared with: a recorded folder, or another run.

    date is the day of the run it was recorded from; empty if that did not say.
    """

    results: Mapping[str, Result]
    source: str
    key: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    commit: str = ""
    date: str = ""
    selection: str | None = None
    has_files: bool = True
    recorded: bool = False
    blessings: Mapping[str, Blessing] = field(default_factory=dict)
    flakes: Mapping[str, Flake] = field(default_factory=dict)


def baseline_of(run: Run, *, key: str | None = None) -> Baseline:
    """A run as the baseline of another."""
    return Baseline(
        results=run.results,
        source=", ".join(run.sources),
        key=key or key_of(run.facts),
        facts=run.facts or {},
        commit=run.commit,
        date=run.started[:10],
        selection=run.selection,
        has_files=run.has_files,
    )


def write_baseline(baseline: Baseline, folder: Path) -> None:
    """Write both files, each whole or not at all; the list of flakes stays as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in render(baseline).items():
        partial = folder / f"{name}.partial"
        partial.write_text(text, encoding="utf-8", newline="\n")
        os.replace(partial, folder / name)


def render(baseline: Baseline) -> dict[str, str]:
    """The content of the files by name."""
    identities = sorted(baseline.results)
    header = {
        "format": _FORMAT,
        "key": baseline.key or "",
        "commit": baseline.commit,
        "date": baseline.date,
        "selection": baseline.selection or "",
        "ids": "files" if baseline.has_files else "classes",
        "tests": str(len(identities)),
        **{name: value for name, value in baseline.facts.items() if name not in _OWN_FIELDS},
    }
    lines = [f"# {name}: {_cell(value)}" for name, value in header.items()]
    lines += [_line(baseline, baseline.results[i]) for i in identities if not is_plain_pass(baseline.results[i])]
    return {TESTS: "".join(f"{i}\n" for i in identities), EXCEPTIONS: "".join(f"{line}\n" for line in lines)}


def is_plain_pass(result: Result) -> bool:
    """A test that passed in its only attempt needs no line of its own."""
    return result.outcome is Outcome.PASS and not result.repeated


def read_baseline(folder: Path) -> Baseline:
    """Read a folder.

    Raises BaselineError if files are missing, or are not what `write_baseline` leaves.
    """
    identities = _lines(folder / TESTS)
    lines = _lines(folder / EXCEPTIONS)
    header = {found[1]: found[2] for line in lines if (found := _HEADER.fullmatch(line))}
    where = str(folder / EXCEPTIONS)
    if header.get("format") != _FORMAT:
        raise BaselineError(got=f"format {header.get('format', 'none')}", expected=f"format {_FORMAT}", where=where)
    if identities != sorted(set(identities)) or header.get("tests") != str(len(identities)):
        expected = f"{header.get('tests', 'a number of')} sorted ids, each once"
        raise BaselineError(got=f"{len(identities)} lines", expected=expected, where=str(folder / TESTS))
    if not _is_day(header.get("date", "")):
        raise BaselineError(got=f"date {header['date']}", expected="a day as YYYY-MM-DD, or none", where=where)
    results = {identity: Result(identity, Outcome.PASS) for identity in identities}
    blessings: dict[str, Blessing] = {}
    for number, line in enumerate(lines, start=1):
        if line and not line.startswith("# "):
            result, blessing = _exception(line, f"{where}, line {number}")
            if result.id not in results:
                raise BaselineError(got=result.id, expected=f"an id of {TESTS}", where=f"{where}, line {number}")
            results[result.id], blessings[result.id] = result, blessing
    return Baseline(
        results=results,
        source=str(folder),
        key=header.get("key") or None,
        facts={name: value for name, value in header.items() if name not in _OWN_FIELDS},
        commit=header.get("commit", ""),
        date=header.get("date", ""),
        selection=header.get("selection") or None,
        has_files=header.get("ids") == "files",
        recorded=True,
        blessings=blessings,
        flakes=read_flakes(folder / FLAKES),
    )


def _line(baseline: Baseline, result: Result) -> str:
    blessing = baseline.blessings.get(result.id, Blessing())
    reason = result.reason if result.outcome is not Outcome.PASS else _REPEATED
    cells = (result.outcome.value, result.id, reason, blessing.reason, blessing.issue, blessing.since)
    return "\t".join(map(_cell, cells))


def _exception(line: str, where: str) -> tuple[Result, Blessing]:
    cells = line.split("\t")
    if len(cells) != 6 or cells[0] not in _OUTCOMES:
        expected = "outcome, id, fingerprint, reason, issue, since, with tabs between them"
        raise BaselineError(got=repr(line[:80]), expected=expected, where=where)
    outcome, repeated = _OUTCOMES[cells[0]], cells[0] == Outcome.PASS.value
    prints = (cells[2],) if cells[2] and not repeated else ()
    result = Result(id=cells[1], outcome=outcome, fingerprints=prints, message=cells[2], repeated=repeated)
    return result, Blessing(reason=cells[3], issue=cells[4], since=cells[5])


def _is_day(text: str) -> bool:
    try:
        return not text or bool(date.fromisoformat(text))
    except ValueError:
        return False


def _cell(text: str) -> str:
    return re.sub(r"[\t\r\n]+", " ", text)


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        got = getattr(error, "strerror", None) or str(error)
        raise BaselineError(got=got, expected="a baseline's file", where=str(path)) from error
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]
