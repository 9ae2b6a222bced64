"""Which files a run consists of: files, folders, patterns."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path

XML = (".xml", ".xml.gz")
LINES = (".jsonl", ".jsonl.gz")


def find_files(places: Iterable[str]) -> tuple[list[Path], list[str]]:
    """The files behind the places, each once and sorted, and a sentence for each place that has none.

    A folder gives the XML below it; only if it has none, the JSON lines below it, which would hold the same tests.
    """
    found: dict[Path, Path] = {}
    missing = []
    for place in places:
        files = _files(place)
        if not files:
            missing.append(_why_none(place))
        for file in files:
            found.setdefault(file.resolve(), file)
    return sorted(found.values()), missing


def _files(place: str) -> list[Path]:
    path = Path(place)
    if path.is_dir():
        below = [file for file in path.rglob("*") if file.is_file()]
        return [f for f in below if f.name.endswith(XML)] or [f for f in below if f.name.endswith(LINES)]
    if path.exists():
        return [path]
    matches = [Path(match) for match in glob.glob(place, recursive=True)]
    return [file for match in matches for file in (_files(str(match)) if match.is_dir() else [match])]


def _why_none(place: str) -> str:
    if Path(place).is_dir():
        return f"{place} holds no .xml, .xml.gz or .jsonl"
    if glob.has_magic(place):
        return f"no file matches {place}"
    return f"{place} does not exist; was the run killed before it wrote anything?"
