"""The list of tests known to fail now and then; an entry needs a reason, an issue and a day on which it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from harness.errors import BaselineError

NAME = "flakes.txt"
_COLUMNS = "id, reason, issue and expiry (YYYY-MM-DD), with tabs between them"


@dataclass(frozen=True, kw_only=True, slots=True)
class Flake:
    """One entry; on the day after expires it has no effect any more."""

    id: str
    reason: str
    issue: str
    expires: date


def read_flakes(path: Path) -> Mapping[str, Flake]:
    """The entries of a file by id; none if there is no file. Empty lines and lines that begin with `# ` say nothing.

    Raises BaselineError for an entry without reason, issue or expiry.
    """
    if not path.exists():
        return {}
    found: dict[str, Flake] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("# "):
            continue
        parts = [part.strip() for part in line.split("\t")]
        if len(parts) != 4 or not all(parts):
            raise BaselineError(got=repr(line[:80]), expected=_COLUMNS, where=f"{path}, line {number}")
        try:
            expires = date.fromisoformat(parts[3])
        except ValueError as error:
            raise BaselineError(got=parts[3], expected="a day as YYYY-MM-DD", where=f"{path}, line {number}") from error
        found[parts[0]] = Flake(id=parts[0], reason=parts[1], issue=parts[2], expires=expires)
    return found
