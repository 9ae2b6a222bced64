"""Brings the testcases of all files together: one result a test, whatever their order and number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from harness.baseline.identity import class_id, identity_of
from harness.baseline.outcomes import RED, Outcome, gravest
from harness.baseline.run import Attempt, Problem, Result, Run

_NAMES_SHOWN = 3
_PASSED = (Attempt(outcome=Outcome.PASS),)


@dataclass(slots=True)
class _Seen:
    """The testcases of one id so far."""

    file: str | None
    line: int | None
    testcases: int
    attempts: tuple[Attempt, ...]
    seconds: float = 0.0
    files: frozenset[str] = frozenset()


@dataclass(slots=True)
class Gathered:
    """What reading has found so far; `to_run` closes it."""

    sources: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    facts: list[dict[str, str]] = field(default_factory=list)
    selections: list[str | None] = field(default_factory=list)
    exit_codes: list[int] = field(default_factory=list)
    skipped_modules: dict[str, str] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    uncounted: bool = False  # some source cannot tell how many tests it should hold
    ends_red: bool = False
    _seen: dict[str, _Seen] = field(default_factory=dict)
    _fileless: bool = False

    def problem(self, kind: str, sentence: str) -> None:
        """Note one reason why the run cannot be judged."""
        self.problems.append(Problem(kind=kind, sentence=sentence))

    def add(
        self,
        name: str,
        *,
        classname: str,
        file: str | None,
        line: int | None,
        attempts: Sequence[Attempt],
        seconds: float = 0.0,
    ) -> None:
        """Add one testcase; no attempt at all is a pass."""
        identity = identity_of(name, classname=classname, file=file)
        self._fileless = self._fileless or file is None
        told = tuple(attempts) or _PASSED
        seen = self._seen.get(identity)
        if seen is None:
            self._seen[identity] = _Seen(file, line, 1, told, seconds)
            return
        seen.line = line if seen.line is None else seen.line
        seen.testcases += 1
        seen.seconds += seconds
        seen.attempts += told

    def add_started(self, text: str) -> None:
        """Add a time stamp, in UTC; one without a zone is taken as UTC, one that is no time stamp is left out."""
        try:
            moment = datetime.fromisoformat(text)
            utc = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError):
            return
        self.started.append(utc.isoformat(timespec="seconds"))

    def to_run(self) -> Run:
        """The run, with one result for each test."""
        seen = self._by_class() if self._fileless else self._seen
        results = {identity: _result(identity, found) for identity, found in seen.items()}
        return Run(
            results=results,
            sources=tuple(self.sources),
            problems=(*self.problems, *self._disagreements()),
            notes=tuple(_notes(seen, results)),
            facts=self.facts[0] if self.facts else None,
            selection=_joined(self.selections),
            exit_codes=tuple(sorted(self.exit_codes)),
            skipped_modules=self.skipped_modules,
            has_files=not self._fileless,
            counts_itself=not self.uncounted and not self.problems,
            ends_red=self.ends_red,
            started=min(self.started, default=""),
            commit=_one(self.commits),
        )

    def _by_class(self) -> dict[str, _Seen]:
        """The ids without files, because one source has none; several tests may then share an id."""
        joined: dict[str, _Seen] = {}
        for identity, found in self._seen.items():
            into = joined.setdefault(class_id(identity), _Seen(found.file, found.line, 0, ()))
            into.testcases += found.testcases
            into.seconds += found.seconds
            into.files |= {found.file} if found.file else frozenset()
            into.attempts += found.attempts
        return joined

    def _disagreements(self) -> list[Problem]:
        """Files of one run that were made in different configurations or on different commits."""
        different = sorted({key for facts in self.facts for key in facts if facts[key] != self.facts[0].get(key)})
        found = [f"the files of this run differ in {', '.join(different)}"] if different else []
        if len(set(self.commits)) > 1:
            found.append(f"the files of this run come from different commits: {', '.join(sorted(set(self.commits)))}")
        return [Problem(kind="shards", sentence=sentence) for sentence in found]


def without_files(run: Run) -> Run:
    """The same run under ids without files, to compare it with one that has none."""
    gathered = Gathered()
    for result in run.results.values():
        gathered._seen[result.id] = _Seen(result.file, result.line, 1, _attempts(result), result.seconds)
    seen = gathered._by_class()
    results = {identity: _result(identity, found) for identity, found in seen.items()}
    return replace(run, results=results, has_files=False, notes=(*run.notes, *_notes(seen, results)))


def _attempts(result: Result) -> tuple[Attempt, ...]:
    """Attempts that give the result again."""
    prints = result.fingerprints or ("",)
    found = [Attempt(outcome=result.outcome, fingerprint=text, message=result.message) for text in prints]
    return (*found, *([Attempt(outcome=Outcome.RERUN)] if result.repeated else []))


def _result(identity: str, seen: _Seen) -> Result:
    if seen.attempts is _PASSED:
        return Result(identity, Outcome.PASS, file=seen.file, line=seen.line, seconds=seen.seconds)
    outcome = gravest(attempt.outcome for attempt in seen.attempts)
    if outcome is Outcome.PASS or outcome is Outcome.NOT_RUN:
        again = seen.testcases > 1 or any(attempt.outcome is Outcome.RERUN for attempt in seen.attempts)
        return Result(
            id=identity, outcome=outcome, repeated=again, file=seen.file, line=seen.line, seconds=seen.seconds
        )
    if outcome is Outcome.RERUN:
        outcome = Outcome.FAIL  # every attempt failed, and none was said to be the last
    spoke = [a for a in seen.attempts if a.outcome is outcome or (outcome in RED and a.outcome in RED)]
    spoke = spoke or list(seen.attempts)
    return Result(
        id=identity,
        outcome=outcome,
        fingerprints=tuple(sorted({attempt.fingerprint for attempt in spoke if attempt.fingerprint})),
        message=min(attempt.message for attempt in spoke),
        repeated=any(a.outcome in (Outcome.PASS, Outcome.RERUN) for a in seen.attempts),
        file=seen.file,
        line=seen.line,
        seconds=seen.seconds,
    )


def _notes(seen: dict[str, _Seen], results: dict[str, Result]) -> list[str]:
    found = []
    for identity, shared in seen.items():
        if len(shared.files) > 1:
            found.append(f"{identity} is ambiguous: it names tests of {', '.join(sorted(shared.files))}")
    again = sorted(i for i, s in seen.items() if s.testcases > 1 and results[i].repeated)
    if again:
        more = len(again) - _NAMES_SHOWN
        names = ", ".join(again[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
        several = "id occurs" if len(again) == 1 else "ids occur"
        found.append(f"{len(again)} {several} in several testcases (re-runs, or tests that share an id): {names}")
    return found


def _one(texts: list[str]) -> str:
    return ", ".join(dict.fromkeys(text for text in texts if text))


def _joined(selections: list[str | None]) -> str | None:
    """What was asked for, over all files; not known if one of them does not say."""
    known = sorted({selection for selection in selections if selection is not None})
    return " + ".join(known) if known and None not in selections else None
