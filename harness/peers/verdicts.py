"""What a peer gave before: a baseline a version, kept and compared by the same means as a run of tests.

`baselines/peers/NAME-VERSION/` is what `harness record-baseline` leaves of the `junit.xml` of a peer's run: one id a
property and kind of configuration. A run is compared with its own version, or else with the newest one before it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from harness.baseline.changes import Change
from harness.baseline.diff import Diff, Entry, compare
from harness.baseline.reading import read_run
from harness.baseline.record import existing_baseline, record
from harness.baseline.store import EXCEPTIONS, read_baseline
from harness.baseline.validity import Limits
from harness.errors import BaselineError
from harness.peers.result import PeerRow

FOLDER = Path("baselines/peers")

# A public model may violate whatever it likes, or be asked something it has not.
_LIMITS = Limits(missing=100, skipped=100, failing=100)

_WORDS = {
    Change.FIXED: "fixes",
    Change.UNSKIPPED: "now holds",
    Change.REGRESSION: "breaks",
    Change.NEW_FAILURE: "now violates",
    Change.NEW_TEST_FAILING: "is asked anew, and violates",
    Change.CHANGED_REASON: "violates in another way",
    Change.NEWLY_SKIPPED: "is vacuous now",
    Change.HIDDEN: "is vacuous now, and was violated",
    Change.VANISHED: "is not asked any more, and was violated",
}


def compared(row: PeerRow, *, run: Path, baselines: Path) -> PeerRow:
    """The row with what changed against its baseline, in words; as it is if there is none, or it could not be asked."""
    place = baseline_of(row, baselines)
    if row.missing or place is None:
        return row
    try:
        diff = _diff(run, place)
    except BaselineError as error:
        return replace(row, baseline=place.name, changes=(str(error),))
    version = place.name.removeprefix(f"{row.name}-")
    told = [_told(entry, row.version) for entry in diff.entries if entry.change in _WORDS]
    return replace(row, baseline=version, changes=tuple(told))


def baseline_of(row: PeerRow, baselines: Path) -> Path | None:
    """The folder to compare with: of the same version, else of the newest lower one, else of the newest."""
    own = re.compile(re.escape(row.name) + r"-(\d.*)")
    versions = {
        found[1]: path
        for path in baselines.glob("*")
        if (found := own.fullmatch(path.name)) and (path / EXCEPTIONS).exists()
    }
    if row.version in versions:
        return versions[row.version]
    newest = sorted(versions, key=_parts)
    lower = [version for version in newest if _parts(version) < _parts(row.version)]
    chosen = (lower or newest)[-1:]
    return versions[chosen[0]] if chosen else None


def bless(row: PeerRow, *, run: Path, baselines: Path, reason: str) -> bool:
    """Make what a peer gave the baseline of its version; says whether anything changed."""
    folder = baselines / f"{row.name}-{row.version}"
    key = folder.name
    found = read_run([str(run)])
    return record(found, existing_baseline(folder, key=key), folder, key=key, reason=reason, issue="")


def _diff(run: Path, place: Path) -> Diff:
    base = read_baseline(place)
    return compare(base, read_run([str(run)]), today=datetime.now(UTC).date(), key=base.key, limits=_LIMITS)


def _told(entry: Entry, version: str) -> str:
    """ "0.8.0 fixes query_sees_only_its_sample on csa"."""
    name, _, kind = entry.id.removeprefix("harness.").partition("::")
    return f"{version} {_WORDS[entry.change]} {name} on {kind}" if kind else f"{version} {_WORDS[entry.change]} {name}"


def _parts(version: str) -> tuple[tuple[int, str], ...]:
    """For sorting: numbers as numbers, so that 0.10 comes after 0.9."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"[.+-]", version))
