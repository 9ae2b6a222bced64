"""A run of tests as a value: what each test gave, and what was wrong with the run as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.baseline.outcomes import Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """What one testcase, one phase of it or one repetition gave."""

    outcome: Outcome
    fingerprint: str = ""
    message: str = ""


class Result(NamedTuple):
    """One test of a run, all its attempts taken together; a tuple, because runs of 100,000 tests are read at once.

    fingerprints are those of the attempts that speak for the outcome, or of every red one; message is for readers.
    repeated says that some attempt passed, but not as the only one: it was run again, or two tests share its id;
    seconds are those of all its attempts, 0 where the writer does not say them.
    """

    id: str
    outcome: Outcome
    fingerprints: tuple[str, ...] = ()
    message: str = ""
    repeated: bool = False
    file: str | None = None
    line: int | None = None
    seconds: float = 0.0

    @property
    def reason(self) -> str:
        """The fingerprints as one text, which is compared and stored."""
        return " && ".join(self.fingerprints)


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One reason why a run cannot be judged; kind is a word for machines."""

    kind: str
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """Every test of a run by id, with what is known of the run itself.

    facts is the configuration and what else the run says of itself (None when it says nothing), selection which tests
    were asked for, exit_codes pytest's own; counts_itself means that it would know of a test that it lost, ends_red
    that the last test of a file failed, as it did where pytest stopped at the first failure. skipped_modules are dotted
    names of files that skipped themselves before their tests were known.
    """

    results: Mapping[str, Result]
    sources: tuple[str, ...]
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    facts: Mapping[str, str] | None = None
    selection: str | None = None
    exit_codes: tuple[int, ...] = ()
    skipped_modules: Mapping[str, str] = field(default_factory=dict)
    has_files: bool = True
    counts_itself: bool = False
    ends_red: bool = False
    started: str = ""
    commit: str = ""
