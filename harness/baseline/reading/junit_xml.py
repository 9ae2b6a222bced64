"""Reads JUnit XML of pytest and of other writers as a stream: no tree, no entities, no trust in its counts.

The standard library's expat, driven directly: memory does not grow with the file, a document type is refused at its
first character, and what was read before an error is kept.
"""

from __future__ import annotations

import math
import re
from typing import IO
from xml.parsers import expat

from harness.baseline.identity import dotted
from harness.baseline.outcomes import RED, Outcome
from harness.baseline.reading.entries import COLLECTION_FAILURE, COLLECTION_SKIPPED, PASSED_IN_THE_END, TAGS, attempt
from harness.baseline.reading.gather import Gathered
from harness.baseline.run import Attempt

_CHUNK_BYTES = 1 << 18
_TEXT_CHARACTERS = 4000
_WORKER = re.compile(r"gw\d+")
# GoogleTest and CTest list tests that they did not carry out.
_NOT_RUN = {"notrun", "disabled", "suppressed", "not run", "not_run"}
_ROOTS = ("testsuites", "testsuite")
_UNFINISHED = {
    expat.errors.codes[expat.errors.XML_ERROR_NO_ELEMENTS],
    expat.errors.codes[expat.errors.XML_ERROR_UNCLOSED_TOKEN],
}
_SECOND_ROOT = expat.errors.codes[expat.errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT]


class _RefusedError(Exception):
    """The document is well formed, perhaps, but not one that is read."""


def read_junit(file: IO[bytes], source: str, *, into: Gathered) -> None:
    """Read one document; whatever is wrong with it becomes a problem of the run, never an exception.

    Raises OSError, EOFError and zlib's error as the file gives them.
    """
    into.uncounted = True
    into.selections.append(None)
    reader = _Reader(source, into)
    try:
        while chunk := file.read(_CHUNK_BYTES):
            reader.feed(chunk)
        reader.finish()
        into.ends_red = into.ends_red or reader.ends_red
    except _RefusedError as error:
        into.problem("unreadable", f"{source}: {error}")
    except expat.ExpatError as error:
        into.problem("unreadable", f"{source}: {_told(error, reader.testcases)}")
    except (ValueError, LookupError) as error:  # an encoding that Python does not know
        into.problem("unreadable", f"{source}: {error}")


def _told(error: expat.ExpatError, testcases: int) -> str:
    read = f"{testcases} testcase{'' if testcases == 1 else 's'} before it"
    if error.code in _UNFINISHED:
        return f"the XML ends before its root does, on line {error.lineno}; {read}"
    if error.code == _SECOND_ROOT:
        return f"something follows the end of the XML's root on line {error.lineno}; {read}"
    return f"no XML: {expat.ErrorString(error.code)}, line {error.lineno}, column {error.offset}; {read}"


class _Reader:
    """Handlers for one document."""

    def __init__(self, source: str, into: Gathered) -> None:
        self.testcases = 0
        self._source = source
        self._into = into
        self._empty = True
        self._case: dict[str, str] | None = None
        self._attempts: list[Attempt] = []
        self._entry: tuple[str, dict[str, str]] | None = None
        self._text: list[str] = []
        self._length = 0
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start_root
        parser.EndElementHandler = self._end
        parser.StartDoctypeDeclHandler = self._doctype
        parser.EntityDeclHandler = self._doctype

    @property
    def ends_red(self) -> bool:
        """Whether the last testcase is red."""
        return any(found.outcome in RED for found in self._attempts)

    def feed(self, chunk: bytes) -> None:
        """Parse some more of the document."""
        self._empty = self._empty and not chunk.strip()
        self._parser.Parse(chunk)

    def finish(self) -> None:
        """Parse the end of the document."""
        if self._empty:
            raise _RefusedError("the file is empty")
        self._parser.Parse(b"", True)  # noqa: FBT003 - expat takes no keyword

    def _doctype(self, *_: object) -> None:
        raise _RefusedError("a document type or entity is declared; JUnit needs none, and such files are refused")

    def _start_root(self, tag: str, attributes: dict[str, str]) -> None:
        if tag.rpartition(":")[2] not in _ROOTS:
            raise _RefusedError(f"the root is <{tag[:40]}>; expected <testsuites> or <testsuite>")
        self._parser.StartElementHandler = self._start
        self._start(tag, attributes)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if ":" in tag:
            tag = tag.rpartition(":")[2]
        if tag == "testcase":
            self._case, self._attempts = attributes, []
        elif self._case is not None:
            if tag in TAGS and self._entry is None:
                self._entry, self._text, self._length = (tag, attributes), [], 0
                self._parser.CharacterDataHandler = self._characters
        elif tag == "testsuite":
            self._into.add_started(attributes.get("timestamp", ""))

    def _characters(self, text: str) -> None:
        if self._length < _TEXT_CHARACTERS:
            self._text.append(text[:_TEXT_CHARACTERS])
            self._length += len(text)

    def _end(self, tag: str) -> None:
        if ":" in tag:
            tag = tag.rpartition(":")[2]
        if tag == "testcase" and self._case is not None:
            self._add(self._case)
            self._case = None
        elif self._entry is not None and tag == self._entry[0]:
            kind, message = self._entry[1].get("type", ""), self._entry[1].get("message", "")
            text = "".join(self._text)
            self._attempts.append(attempt(tag, kind=kind, message=message, text=text))
            if tag in PASSED_IN_THE_END:
                self._attempts.append(Attempt(outcome=Outcome.PASS))
            self._note_collection(message, text)
            self._entry = None
            self._parser.CharacterDataHandler = None

    def _note_collection(self, message: str, text: str) -> None:
        case = self._case or {}
        name = case.get("name", "")
        if message == COLLECTION_SKIPPED:
            self._into.skipped_modules[dotted(name)] = text[:_TEXT_CHARACTERS]
        elif message == COLLECTION_FAILURE and not _WORKER.fullmatch(name):
            self._into.problem("collection", f"{case.get('file') or name} could not be collected")

    def _add(self, case: dict[str, str]) -> None:
        self.testcases += 1
        name, classname = case.get("name", ""), case.get("classname", "")
        if not name and not classname:
            self._into.problem("unnamed", f"{self._source}: a testcase has no name; pytest was interrupted in it")
            return
        if not classname and _WORKER.fullmatch(name):
            self._into.problem("worker", f"worker {name} collected other tests than the first worker")
            return
        if not self._attempts and ("status" in case or "result" in case) and _did_not_run(case):
            self._attempts.append(Attempt(outcome=Outcome.NOT_RUN))
        line = case.get("line", "")
        self._into.add(
            name,
            classname=classname,
            file=case.get("file") or None,
            line=int(line) + 1 if line.isdecimal() else None,
            attempts=self._attempts,
            seconds=_seconds(case.get("time", "")),
        )


def _seconds(text: str) -> float:
    """A testcase's time; 0 for what is no number of seconds, such as `1m2s`."""
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0


def _did_not_run(case: dict[str, str]) -> bool:
    return bool({case.get("status", "").lower(), case.get("result", "").lower()} & _NOT_RUN)
