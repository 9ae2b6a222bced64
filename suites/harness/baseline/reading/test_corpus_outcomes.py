"""What really ran is read as what it was: phases, crashes, subtests, re-runs, odd ids; the same from both formats."""

from __future__ import annotations

import pytest

from harness.baseline.outcomes import Outcome
from harness.baseline.reading import read_run
from harness.baseline.run import Run
from suites.harness.baseline import corpus
from suites.harness.baseline.made import outcomes

WHOLE = sorted(
    path.name for path in corpus.RUNS.iterdir() if {"junit.xml", "results.jsonl"} <= {p.name for p in path.iterdir()}
)


def both(name: str) -> list[Run]:
    """A run from its JUnit and from its JSON lines."""
    return [read_run([corpus.junit(name)]), read_run([corpus.lines(name)])]


@pytest.mark.parametrize("name", [name for name in WHOLE if "xunit2" not in name and "collection" not in name])
def test_both_formats_give_the_same_results(name: str) -> None:
    xml, jsonl = both(name)
    # A crash has no line in JUnit, and may be told with or without its phase.
    told = [{i: (r.outcome, r.fingerprints, r.repeated) for i, r in run.results.items()} for run in (xml, jsonl)]
    assert told[0] == told[1]


def test_each_phase_has_its_outcome() -> None:
    for run in both("phases"):
        assert outcomes(run) == {
            "test_passes": "pass",
            "test_setup": "error (setup)",
            "test_teardown": "error (teardown)",
            "test_call_and_teardown": "fail",
            "test_strict": "xpass (strict)",
            "test_not_strict": "pass",
            "test_expected": "xfail",
            "test_skips": "skip",
        }


def test_a_failure_and_an_error_of_one_test_are_both_kept() -> None:
    for run in both("phases"):
        found = run.results["test_phases.py::test_call_and_teardown"]
        assert found.fingerprints == ("call: AssertionError: assert # == #", "teardown: OSError: left behind # files")


def test_subtests_are_one_test_with_all_their_failures() -> None:
    for run in both("subtests"):
        assert outcomes(run) == {"test_numbers": "fail", "test_fine": "pass"}
        assert "call: AssertionError: assert (# % #) == #" in run.results["test_subtests.py::test_numbers"].fingerprints


def test_reruns_never_make_the_last_one_win() -> None:
    for run in both("reruns"):
        assert outcomes(run) == {"test_at_the_third_attempt": "pass", "test_never": "fail", "test_always": "pass"}
        repeated = {identity for identity, found in run.results.items() if found.repeated}
        assert repeated == {"test_reruns.py::test_at_the_third_attempt", "test_reruns.py::test_never"}


def test_a_crash_in_one_worker_outweighs_a_pass_in_another() -> None:
    for run in both("crash_and_pass"):
        assert run.results["test_both.py::test_one_of_two"].outcome is Outcome.CRASH
        assert any("test_one_of_two" in note for note in run.notes)


def test_a_timeout_is_no_failure() -> None:
    for run in both("timeout"):
        assert outcomes(run) == {"test_slow": "timeout", "test_fine": "pass"}


def test_folders_that_dots_make_equal_stay_apart() -> None:
    for run in both("dotted_folders"):
        assert {i: r.outcome.value for i, r in run.results.items()} == {
            "v1.2/test_d.py::test_a": "pass",
            "v1/2/test_d.py::test_a": "fail",
        }


def test_without_files_the_ambiguous_id_is_said_and_red_wins() -> None:
    run = read_run([corpus.junit("dotted_folders_xunit2")])
    assert {i: r.outcome.value for i, r in run.results.items()} == {"v1.2.test_d::test_a": "fail"}
    assert any("v1.2.test_d::test_a" in note and "share an id" in note for note in run.notes)


def test_inherited_tests_are_told_apart_by_class() -> None:
    for run in both("inherited"):
        assert sorted(run.results) == [
            "base.py::test_one.TestOne::test_other",
            "base.py::test_one.TestOne::test_shared",
            "base.py::test_one.TestTwo::test_other",
            "base.py::test_one.TestTwo::test_shared",
        ]


def test_odd_ids_keep_their_names_and_addresses_go() -> None:
    for run in both("odd_ids"):
        assert "test_odd.py::test_odd[a::b]" in run.results
        assert "test_odd.py::test_odd[a]b[]" in run.results
        assert "test_odd.py::test_address[<test_odd.Thing object at 0x...>]" in run.results
        assert len(run.results) == 23
        assert max(map(len, run.results)) < 400
        assert any("at 0x...>" in note for note in run.notes)


def test_a_group_of_xdist_is_no_part_of_a_name() -> None:
    for run in both("groups_n2"):
        assert sorted(run.results) == [
            "test_groups.py::test_grouped[a@b]",
            "test_groups.py::test_grouped[c]",
            "test_groups.py::test_plain",
        ]
    suffixed = read_run([corpus.foreign("group_suffix.xml")])
    assert sorted(suffixed.results) == [
        "test_g.py::test_a[x@y]",
        "test_g.py::test_b",
        "test_g.py::test_c[p@q]",
    ]


def test_a_module_that_skips_itself_is_known() -> None:
    for run in both("skipped_module"):
        assert list(run.skipped_modules) == ["test_alpha"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bare_root.xml", {"adds": "pass", "removes": "fail", "clears": "pass"}),
        ("nested.xml", {"one": "pass", "two": "error", "three": "skip"}),
        ("namespaces.xml", {"one": "pass", "two": "fail"}),
        ("missing_attributes.xml", {"only a name": "pass", "": "pass", "x": "fail"}),
        ("surefire_flaky.xml", {"flaky": "pass", "flakyError": "pass", "broken": "fail", "fine": "pass"}),
        ("googletest.xml", {"Adds": "pass", "DISABLED_Wraps": "not run", "Drops": "fail"}),
        (
            "newline_attribute.xml",
            {"first second": "pass", "first third": "pass", "bell#x07 \U0001f600 \ufffd": "pass"},
        ),
    ],
)
def test_foreign_files_are_read_once_and_whole(name: str, expected: dict[str, str]) -> None:
    run = read_run([corpus.foreign(name)])
    assert outcomes(run) == expected
    assert run.problems == ()


def test_flaky_tags_are_not_ignored() -> None:
    run = read_run([corpus.foreign("surefire_flaky.xml")])
    assert {i.rpartition("::")[2] for i, found in run.results.items() if found.repeated} == {
        "flaky",
        "flakyError",
        "broken",
    }
