"""Several testcases of one test become one result, in whatever order they come."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from harness.baseline.outcomes import Outcome
from harness.baseline.reading import read_run, without_files
from suites.harness.baseline import corpus
from suites.harness.baseline.made import case_xml, result, run_of, write_xml

P, F, T, C, S = Outcome.PASS, Outcome.FAIL, Outcome.ERROR_TEARDOWN, Outcome.CRASH, Outcome.SKIP


@pytest.mark.parametrize(
    ("several", "expected"),
    [((P, F), F), ((F, T), F), ((C, P), C), ((P, S), S), ((P, P), P), ((P, P, F), F), ((T, P), T)],
    ids=lambda value: value.value if isinstance(value, Outcome) else "+".join(o.value for o in value),
)
def test_the_gravest_speaks_in_every_order(several: tuple[Outcome, ...], expected: Outcome, tmp_path: Path) -> None:
    found = set()
    for order in itertools.permutations(several):
        run = read_run([write_xml(tmp_path / "run.xml", *(case_xml("test_a", outcome) for outcome in order))])
        found.add((run.results["t.py::test_a"].outcome, run.results["t.py::test_a"].fingerprints))
    assert {outcome for outcome, _ in found} == {expected}
    assert len(found) == 1


def test_shards_may_come_in_any_order_and_number(tmp_path: Path) -> None:
    cases = [case_xml(f"test_{n}", *([F] if n % 3 == 0 else []), why=f"{n}") for n in range(9)]
    whole = read_run([write_xml(tmp_path / "whole.xml", *cases)])
    for count in (2, 3, 9):
        files = [write_xml(tmp_path / f"shard{n}.xml", *cases[n::count]) for n in range(count)]
        for order in (files, files[::-1]):
            assert read_run(order).results == whole.results


def test_one_file_without_files_makes_all_ids_plain(tmp_path: Path) -> None:
    one = write_xml(tmp_path / "one.xml", case_xml("test_a"))
    other = write_xml(tmp_path / "other.xml", case_xml("test_b", file=None))
    run = read_run([one, other])
    assert sorted(run.results) == ["t::test_a", "t::test_b"]
    assert not run.has_files


def test_dropping_files_keeps_what_each_test_gave() -> None:
    run = run_of(result("a"), result("b", F, "why"), result("c")._replace(repeated=True))
    reduced = without_files(run)
    assert {i: (r.outcome, r.fingerprints, r.repeated) for i, r in reduced.results.items()} == {
        "t::a": (P, (), False),
        "t::b": (F, ("why",), False),
        "t::c": (P, (), True),
    }


def test_two_tests_that_become_one_are_said_to_be_ambiguous() -> None:
    one = result("a")._replace(id="v1.2/t.py::a", file="v1.2/t.py")
    other = result("a", F, "why")._replace(id="v1/2/t.py::a", file="v1/2/t.py")
    reduced = without_files(run_of(one, other))
    assert reduced.results["v1.2.t::a"].outcome is F
    assert any("v1.2.t::a is ambiguous: it names tests of v1.2/t.py, v1/2/t.py" in note for note in reduced.notes)


def test_seconds_of_all_testcases_of_a_test_are_added_up(tmp_path: Path) -> None:
    testcases = [f'<testcase classname="t" name="a" file="t.py" time="{time}"/>' for time in ("0.5", "0.25", "1m2s")]
    (tmp_path / "run.xml").write_text(f"<testsuite>{''.join(testcases)}</testsuite>", encoding="utf-8")
    lines = read_run([corpus.lines("base")])
    assert read_run([str(tmp_path / "run.xml")]).results["t.py::a"].seconds == 0.75
    assert max(result.seconds for result in lines.results.values()) > 0
