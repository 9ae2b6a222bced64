"""The history of nights in one SQLite file.

SQLite and not DuckDB: two processes may append to one file, each waiting for the other, where DuckDB lets one process
open a file to write; and the standard library brings it. Nights are appended and never changed: triggers refuse both,
whoever asks. A test's id is written once; a night is one row, with its tests as compressed numbers (10 to 30 KB for
5,000 tests).
"""

from __future__ import annotations

import enum
import json
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from harness.errors import HistoryError
from harness.nightly.night import Night
from harness.nightly.nights import Nights, Numbers, encoded, in_time
from harness.nightly.summary import Summary, summarise

_MAGIC = b"SQLite format 3\0"
FORMAT = 1
_WAIT_S = 60
"""How long a writer waits for another: an append takes milliseconds."""

_SCHEMA = (
    "CREATE TABLE tests (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE)",
    "CREATE TABLE nights (stamp TEXT PRIMARY KEY, summary TEXT NOT NULL, results BLOB NOT NULL) WITHOUT ROWID",
    *(
        f"CREATE TRIGGER {table}_{verb.lower()} BEFORE {verb} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, 'a history is only appended to'); END"
        for table in ("tests", "nights")
        for verb in ("UPDATE", "DELETE")
    ),
    f"PRAGMA user_version = {FORMAT}",
)


class Appended(enum.Enum):
    """What became of a night: NEW, KNOWN before, or OTHER: one of its name is there with other figures, and stays."""

    NEW = "new"
    KNOWN = "known"
    OTHER = "other"


class History:
    """The nights of one file, which is made when the first is appended.

    Raises HistoryError for a file that is no history, of another format, or that cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, night: Night) -> Appended:
        """Keep a night; safe while another process does the same."""
        summary = json.dumps(summarise(night).to_json(), sort_keys=True)
        results = night.suites.results if night.suites else {}
        stamp = night.facts.stamp
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            self._prepare(database)
            numbers = dict(database.execute("SELECT id, number FROM tests"))
            for name in results:
                if name not in numbers:
                    numbers[name] = database.execute("INSERT INTO tests (id) VALUES (?)", (name,)).lastrowid
            codes, millis = encoded(results.values())
            blob = _packed(np.array([numbers[name] for name in results], dtype=np.uint32), codes, millis)
            known = database.execute("SELECT summary, results FROM nights WHERE stamp = ?", (stamp,)).fetchone()
            if known is not None:
                database.rollback()
                return Appended.KNOWN if known == (summary, blob) else Appended.OTHER
            database.execute("INSERT INTO nights VALUES (?, ?, ?)", (stamp, summary, blob))
            database.commit()
        return Appended.NEW

    def nights(self) -> Nights:
        """Every night, valid or not, oldest first."""
        if not self._path.exists():
            raise HistoryError(got="no such file", expected="a history", where=str(self._path))
        with self._open() as database:
            database.execute("BEGIN")
            self._check(database)
            tests = dict(database.execute("SELECT number, id FROM tests ORDER BY number"))
            rows = database.execute("SELECT summary, results FROM nights").fetchall()
        told = [(Summary.from_json(json.loads(summary)), blob) for summary, blob in rows]
        told.sort(key=lambda night: in_time(night[0]))
        column = np.zeros(max(tests, default=0) + 1, dtype=np.intp)
        column[list(tests)] = np.arange(len(tests))
        codes = np.zeros((len(rows), len(tests)), dtype=np.uint8)
        millis = np.zeros((len(rows), len(tests)), dtype=np.uint32)
        for night, (_, blob) in enumerate(told):
            numbers, codes_of, millis_of = _unpacked(blob)
            codes[night, column[numbers]] = codes_of
            millis[night, column[numbers]] = millis_of
        return Nights(
            summaries=tuple(summary for summary, _ in told),
            tests=tuple(tests.values()),
            codes=codes,
            millis=millis,
        )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # SQLite takes a file too short for its header for an empty database, and writes over it.
            if self._path.is_file() and 0 < self._path.stat().st_size < len(_MAGIC):
                raise HistoryError(got="no database", expected="a history of nights", where=str(self._path))
            # Transactions are begun by hand: the module's own would begin them after the first read.
            with closing(sqlite3.connect(self._path, timeout=_WAIT_S, isolation_level=None)) as database:
                yield database
        except (OSError, sqlite3.Error) as error:
            raise HistoryError(got=str(error), expected="a history of nights", where=str(self._path)) from error

    def _prepare(self, database: sqlite3.Connection) -> None:
        """Make the tables in a new file."""
        if database.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            for statement in _SCHEMA:
                database.execute(statement)
        self._check(database)

    def _check(self, database: sqlite3.Connection) -> None:
        (found,) = database.execute("PRAGMA user_version").fetchone()
        if found != FORMAT:
            raise HistoryError(got=f"format {found}", expected=f"a history of format {FORMAT}", where=str(self._path))


def _packed(numbers: Numbers, codes: Numbers, millis: Numbers) -> bytes:
    """The three columns behind each other, by test number, so that the same results give the same bytes."""
    order = np.argsort(numbers)
    columns = (numbers[order].astype("<u4"), codes[order].astype("u1"), millis[order].astype("<u4"))
    return zlib.compress(b"".join(column.tobytes() for column in columns))


def _unpacked(blob: bytes) -> tuple[Numbers, Numbers, Numbers]:
    data = zlib.decompress(blob)
    count = len(data) // 9
    return (
        np.frombuffer(data, dtype="<u4", count=count),
        np.frombuffer(data, dtype="u1", count=count, offset=4 * count),
        np.frombuffer(data, dtype="<u4", count=count, offset=5 * count),
    )
