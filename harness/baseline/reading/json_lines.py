"""Reads the JSON lines of `harness.pytest_results`, also of a run that was killed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from typing import Any

from harness.baseline.identity import dotted, split_node_id
from harness.baseline.reading.entries import COLLECTION_FAILURE, attempt
from harness.baseline.reading.gather import Gathered
from harness.baseline.run import Attempt

SCHEMA_VERSION = 1
_WORKER = re.compile(r"gw\d+")


def read_json_lines(lines: Iterable[str], source: str, *, into: Gathered) -> None:
    """Read one file; whatever is wrong with it becomes a problem of the run, never an exception."""
    reader = _Reader(source, into)
    number = 1
    try:
        for line in lines:
            if line.strip():
                reader.take(json.loads(line))
            number += 1
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        # The last line of a killed run may be cut; that run has no footer either.
        into.problem("unreadable", f"{source}: line {number} is not one of our plugin's ({_told(error)})")
    reader.finish()


def _told(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


class _Reader:
    """The state of one file: which tests it promised, which it gave."""

    def __init__(self, source: str, into: Gathered) -> None:
        self._source = source
        self._into = into
        self._header = False
        self._footer = False
        self._collected: list[str] = []
        self._given: set[str] = set()

    def take(self, line: dict[str, Any]) -> None:
        """Take in one line."""
        kind = line["kind"]
        if not self._header and (kind != "header" or line["schema_version"] != SCHEMA_VERSION):
            raise ValueError(f"expected a header of schema_version {SCHEMA_VERSION}")
        {
            "header": self._take_header,
            "collected": self._take_collected,
            "test": self._take_test,
            "collection": self._take_collection,
            "problem": lambda line: self._into.problem("worker", line["problem"]),
            "footer": self._take_footer,
        }[kind](line)

    def finish(self) -> None:
        """Say what is missing."""
        if not self._header:
            if not self._into.problems:
                self._into.problem("unreadable", f"{self._source}: the file is empty")
            return
        gone = [nodeid for nodeid in self._collected if nodeid not in self._given]
        if not self._footer:
            given = f"{len(self._given)} of {len(self._collected)} collected tests have a result"
            self._into.problem("partial", f"the run did not finish: {given}{_first(gone)}")
        elif gone:
            missing = f"{len(gone)} of {len(self._collected)} collected tests have no result"
            self._into.problem("partial", f"the run ended early: {missing}{_first(gone)}")

    def _take_header(self, line: dict[str, Any]) -> None:
        self._header = True
        self._into.add_started(str(line["started"]))
        self._into.commits.append(str(line["commit"]))
        self._into.selections.append(_asked(line["selection"]))
        if line["facts"]:
            self._into.facts.append({str(key): str(value) for key, value in line["facts"].items()})

    def _take_collected(self, line: dict[str, Any]) -> None:
        self._collected = [str(nodeid) for nodeid in line["ids"]]

    def _take_test(self, line: dict[str, Any]) -> None:
        self._given.add(line["nodeid"])
        classname, name = split_node_id(line["nodeid"])
        self._into.add(
            name,
            classname=classname,
            file=line["file"],
            line=None if line["line"] is None else line["line"] + 1,
            attempts=[_attempt(entry) for entry in line["entries"]],
            seconds=float(line.get("seconds", 0.0)),
        )

    def _take_collection(self, line: dict[str, Any]) -> None:
        nodeid = line["nodeid"]
        for entry in line["entries"]:
            if entry["message"] != COLLECTION_FAILURE:
                self._into.skipped_modules[dotted(nodeid)] = entry["detail"]
                classname, name = split_node_id(nodeid)
                self._into.add(name, classname=classname, file=nodeid, line=None, attempts=[_attempt(entry)])
            elif _WORKER.fullmatch(nodeid):
                self._into.problem("worker", f"worker {nodeid} collected other tests than the first worker")
            else:
                self._into.problem("collection", f"{nodeid or 'the root folder'} could not be collected")

    def _take_footer(self, line: dict[str, Any]) -> None:
        self._footer = True
        self._into.exit_codes.append(int(line["exit_code"]))


def _asked(selection: dict[str, Any]) -> str:
    """The selection as it would be typed after `pytest`."""
    words = list(selection["arguments"])
    for option, value in selection.items():
        if option != "arguments":
            values = value if isinstance(value, list) else [value]
            words += [option if given is True else f"{option} {shlex.quote(str(given))}" for given in values]
    return " ".join(words)


def _attempt(entry: dict[str, str]) -> Attempt:
    return attempt(entry["tag"], kind=entry["type"], message=entry["message"], text=entry.get("detail", ""))


def _first(names: list[str]) -> str:
    return f" (first missing: {names[0][:120]})" if names else ""
