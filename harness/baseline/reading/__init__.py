"""From files of any writer to one `Run`. Nothing that a file contains raises: it becomes a problem of the run."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, cast

from harness.baseline.reading.gather import Gathered, without_files
from harness.baseline.reading.json_lines import read_json_lines
from harness.baseline.reading.junit_xml import read_junit
from harness.baseline.reading.places import LINES, find_files
from harness.baseline.run import Run

__all__ = ["read_run", "without_files"]


def read_run(places: Iterable[str], *, shards: int | None = None, exit_code: int | None = None) -> Run:
    """Read a run from its files, folders or patterns.

    shards is how many files it must consist of and exit_code what pytest returned, each where the caller knows it.
    """
    files, missing = find_files(places)
    gathered = Gathered()
    for sentence in missing:
        gathered.problem("absent", sentence)
    if shards is not None and shards != len(files):
        gathered.problem("shards", f"got {len(files)} of {shards} files of this run")
    if exit_code is not None:
        gathered.exit_codes.append(exit_code)
    for file in files:
        _read(file, gathered)
    return gathered.to_run()


def _read(path: Path, gathered: Gathered) -> None:
    source = str(path)
    gathered.sources.append(source)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as opened:
            file = cast(IO[bytes], opened)
            if path.name.endswith(LINES):
                read_json_lines((line.decode("utf-8") for line in file), source, into=gathered)
            else:
                read_junit(file, source, into=gathered)
    except (OSError, EOFError, zlib.error) as error:
        gathered.problem("unreadable", f"{source}: {getattr(error, 'strerror', None) or error}")
