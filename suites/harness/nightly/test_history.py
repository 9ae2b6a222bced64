"""The history: append-only, one file for two writers, compact, and read back as it was."""

from __future__ import annotations

import multiprocessing
import sqlite3
from pathlib import Path

import pytest

from harness.baseline.outcomes import Outcome
from harness.baseline.run import Result, Run
from harness.errors import HistoryError
from harness.nightly.history import Appended, History
from harness.nightly.night import Facts, Night
from harness.nightly.nights import CODES
from harness.nightly.reading import read_nights
from harness.nightly.summary import summarise
from suites.harness.nightly.made import BROKEN, LATE, NEW_ON, write_nights


def night(stamp: str, *results: Result, validity: str = "valid") -> Night:
    """A night that ran these tests."""
    run = Run(results={result.id: result for result in results}, sources=("run",))
    facts = Facts(stamp=stamp, started=f"{stamp}T00:00:00+00:00", versions={}, key="k", validity=validity)
    return Night(facts=facts, suites=run)


def result(name: str, outcome: Outcome = Outcome.PASS, *, seconds: float = 0.25, repeated: bool = False) -> Result:
    """One test."""
    prints = () if outcome is Outcome.PASS else (f"call: {outcome.value}",)
    return Result(id=name, outcome=outcome, fingerprints=prints, seconds=seconds, repeated=repeated)


def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    folders = write_nights(tmp_path / "nights", nights=NEW_ON + 1, tests=60)
    made = read_nights(map(str, folders))
    history = History(tmp_path / "deep" / "h.sqlite")
    for each in reversed(made):  # the order of nights is that of their stamps
        assert history.append(each) is Appended.NEW
    found = history.nights()
    assert found.summaries == tuple(summarise(each) for each in made)
    for number, each in enumerate(made):
        assert each.suites is not None
        kept = found.results(number)
        assert kept.keys() == each.suites.results.keys()
        for name, was in each.suites.results.items():
            assert (kept[name].outcome, kept[name].seconds) == (was.outcome, was.seconds)
            assert kept[name].reason == (was.reason if name in found.summaries[number].reasons else "")
    late = found.tests.index(LATE)
    assert found.codes[: NEW_ON + 1, late].astype(bool).tolist() == [False] * NEW_ON + [True]
    assert found.summaries[BROKEN].validity.startswith("infrastructure")


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome not in (Outcome.ABSENT, Outcome.RERUN)])
def test_every_outcome_of_a_test_has_a_number(outcome: Outcome, tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite")
    history.append(night("2026-01-01", result("a", outcome, repeated=True), result("b", outcome)))
    kept = history.nights().results(0)
    assert (kept["a"].outcome, kept["a"].repeated) == (outcome, True)
    assert (kept["b"].outcome, kept["b"].repeated) == (outcome, False)


def test_the_numbers_of_outcomes_stay_those_of_stored_histories() -> None:
    assert [outcome.value for outcome in CODES] == [
        "absent", "pass", "fail", "error", "error (setup)", "error (teardown)", "crash", "timeout", "xfail",
        "xpass (strict)", "skip", "not run", "collection error",
    ]  # fmt: skip


def test_a_night_is_kept_once_and_never_changed(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    history = History(path)
    first = night("2026-01-01", result("a"))
    assert [history.append(first), history.append(first)] == [Appended.NEW, Appended.KNOWN]
    other = night("2026-01-01", result("a", Outcome.FAIL), result("b"))
    assert history.append(other) is Appended.OTHER
    assert history.nights().results(0)["a"].outcome is Outcome.PASS
    assert history.nights().tests == ("a",)
    with sqlite3.connect(path) as database:
        for statement in ("UPDATE nights SET summary = ''", "DELETE FROM nights", "UPDATE tests SET id = 'x'",
                          "DELETE FROM tests"):  # fmt: skip
            with pytest.raises(sqlite3.IntegrityError, match="only appended to"):
                database.execute(statement)
    database.close()


def _write(path: Path, writer: int, start: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    for number in range(20):
        stamp = f"2026-{writer + 1:02}-{number + 1:02}"
        History(path).append(night(stamp, *(result(f"t{writer}{n}") for n in range(number + 1)), result("shared")))


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(2)
    writers = [context.Process(target=_write, args=(path, writer, start)) for writer in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    found = History(path).nights()
    assert len(found.summaries) == 40
    assert len(found.tests) == len(set(found.tests)) == 41
    assert [len(found.results(number)) for number in range(20)] == list(range(2, 22))


def test_a_night_of_5000_tests_takes_little_room(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    history = History(path)
    tests = [result(f"suites/a/long/folder/test_{n}.py::test_{n}", seconds=n % 997 / 1000) for n in range(5000)]
    history.append(night("2026-01-01", *tests))
    size = path.stat().st_size
    for day in range(2, 12):
        history.append(night(f"2026-01-{day:02}", *tests))
    each = (path.stat().st_size - size) / 10
    print(f"{each / 1024:.1f} KiB a night, {size / 1024:.0f} KiB for the first with the ids")
    assert each < 40 * 1024


@pytest.mark.parametrize("content", [b"x", b"no database, but long enough to be looked at " * 30, None])
def test_what_is_no_history_is_refused_in_one_sentence(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(HistoryError, match=r"expected a history.*h\.sqlite"):
        History(path).nights()


def test_another_format_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    History(path).append(night("2026-01-01", result("a")))
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 9")
    database.close()
    before = path.read_bytes()
    with pytest.raises(HistoryError, match="format 9"):
        History(path).append(night("2026-01-02", result("a")))
    assert path.read_bytes() == before
