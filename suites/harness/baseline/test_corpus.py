"""Every way a run was seen to go wrong gives its verdict and its exit code; none a stack trace, none 0 when invalid."""

from __future__ import annotations

import json

import pytest

from harness import cli
from suites.harness.baseline import corpus

BASE = "base"
NOTHING = "Nothing can be decided: "
AS_BEFORE = "0 regressions, 2 still failing"

# Run, exit code, and the beginning of the headline: from JUnit XML, then from JSON lines where they can say more.
ROWS: dict[str, tuple[int, str] | tuple[int, str, int, str]] = {
    # whole runs
    "base_n2": (0, AS_BEFORE),
    "base_xunit2": (0, AS_BEFORE),
    "same_reason": (0, AS_BEFORE),
    "changed_reason": (0, "0 regressions, 1 changed reason, 1 still failing"),
    "one_broken": (1, "1 regression, 2 still failing"),
    "one_exchanged": (1, "1 regression, 1 fixed, 1 still failing"),
    "one_removed": (0, "0 regressions, 1 removed, 2 still failing"),
    "one_renamed": (1, "0 regressions, 1 new test failing, 1 vanished, 1 still failing"),
    "tests_renamed": (0, "0 regressions, 20 renamed?, 2 still failing"),
    "skipped_module": (1, "0 regressions, 20 newly skipped, 1 added, skipped, 2 still failing"),
    # runs that parse and are wrong
    "collection_error": (3, NOTHING + "test_delta.py could not be collected"),
    "collection_error_n2": (3, NOTHING + "test_delta.py could not be collected"),
    "set_parametrize_n2": (3, NOTHING + "worker gw1 collected other tests than the first"),
    "odd_ids_n2": (3, NOTHING + "worker gw1 collected other tests than the first"),
    "ten_crashes_n2": (
        3,
        NOTHING + "1 of the baseline's 42 tests is missing and a worker crashed: was something lost with it?",
        3,
        NOTHING + "the run ended early: 2 of 52 collected tests have no result (first missing: test_crash.py",
    ),
    "ten_crashes_no_restart": (
        3,
        NOTHING + "10 of the baseline's 42 tests are missing (24%, 10% allowed)",
        3,
        NOTHING + "the run ended early: 18 of 52 collected tests have no result",
    ),
    "sigint": (
        3,
        NOTHING + "JUNIT: a testcase has no name; pytest was interrupted in it",
        3,
        NOTHING + "the run ended early: 11 of 43 collected tests have no result",
    ),
    "pytest_exit": (
        3,
        NOTHING + "JUNIT: a testcase has no name; pytest was interrupted in it",
        3,
        NOTHING + "the run ended early: 11 of 43 collected tests have no result",
    ),
    "gated": (3, NOTHING + "all 42 tests were skipped: nothing was tried"),
    "first_failure": (
        3,
        NOTHING + "11 of the baseline's 42 tests are missing",
        3,
        NOTHING + "the run ended early: 11 of 42 collected tests have no result",
    ),
    "keyword": (
        3,
        NOTHING + "24 of the baseline's 42 tests are missing",
        3,
        NOTHING + "other tests were asked for: pytest . -k 'last or tree'; the baseline's was pytest .",
    ),
    "last_failed": (
        3,
        NOTHING + "40 of the baseline's 42 tests are missing",
        3,
        NOTHING + "other tests were asked for: pytest . --last-failed; the baseline's was pytest .",
    ),
    "one_file": (
        3,
        NOTHING + "10 of the baseline's 42 tests are missing",
        3,
        NOTHING + "other tests were asked for: pytest test_alpha.py test_beta.py; the baseline's was pytest .",
    ),
    "no_tests": (3, NOTHING + "the run holds no test"),
    "other_rootdir": (3, NOTHING + "the run has none of the baseline's 42 tests: this run has 'part/' in front of ids"),
    # no XML at all; what the JSON lines hold is told nevertheless
    "sigterm": (3, NOTHING + "JUNIT does not exist", 3, NOTHING + "the run did not finish: 32 of 43 collected tests"),
    "sigterm_n2": (3, NOTHING + "JUNIT does not exist", 3, NOTHING + "the run did not finish: 32 of 43 collected"),
    "os_exit": (3, NOTHING + "JUNIT does not exist", 3, NOTHING + "the run did not finish: 32 of 43 collected tests"),
    "conftest_import_error": (3, NOTHING + "JUNIT does not exist", 3, NOTHING + "LINES does not exist"),
}

FOREIGN = {
    "bare_root.xml": (0, "0 regressions, 1 still failing"),
    "nested.xml": (0, "0 regressions, 1 still failing"),
    "namespaces.xml": (0, "0 regressions, 1 still failing"),
    "missing_attributes.xml": (0, "0 regressions, 1 still failing"),
    "surefire_flaky.xml": (0, "0 regressions, 1 still failing"),
    "googletest.xml": (0, "0 regressions, 1 still failing"),
    "newline_attribute.xml": (0, "0 regressions"),
    "group_suffix.xml": (0, "0 regressions"),
    "doctype.xml": (3, "a document type or entity is declared"),
    "entities.xml": (3, "a document type or entity is declared"),
    "external_entity.xml": (3, "a document type or entity is declared"),
    "not_junit.xml": (3, "the root is <html>; expected <testsuites> or <testsuite>"),
    "prose.xml": (3, "no XML: syntax error, line 1"),
    "blank.xml": (3, "the file is empty"),
}


def diffed(capsys: pytest.CaptureFixture[str], run: str, base: str, *more: str) -> tuple[int, str, str]:
    """Exit code, headline and errors of one comparison."""
    code = cli.run_cli(["diff-baseline", run, "--baseline", base, "--format", "json", *more])
    out, err = capsys.readouterr()
    return code, json.loads(out)["headline"] if out else "", err


@pytest.mark.parametrize("name", ROWS)
def test_a_run_as_junit_gets_its_verdict(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, start = ROWS[name][:2]
    run = corpus.junit(name)
    got, headline, err = diffed(capsys, run, corpus.junit(BASE))
    assert (got, err) == (code, "")
    assert headline.replace(run, "JUNIT").startswith(start)


@pytest.mark.parametrize("name", ROWS)
def test_a_run_as_json_lines_gets_its_verdict(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, start = ROWS[name][-2:]
    run = corpus.lines(name)
    got, headline, err = diffed(capsys, run, corpus.lines(BASE))
    assert (got, err) == (code, "")
    assert headline.replace(run, "LINES").startswith(str(start))


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name][-2] != 3])
def test_pytests_own_exit_code_agrees_with_a_run_that_is_whole(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--exit-code", str(corpus.status(name))]
    code, _, _ = diffed(capsys, corpus.junit(name), corpus.junit(BASE), *given)
    assert code == ROWS[name][0]


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_against_itself_gets_its_verdict(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, words = FOREIGN[name]
    got, headline, err = diffed(capsys, corpus.foreign(name), corpus.foreign(name))
    assert got == code
    assert words in (headline or err)
    assert len(err.splitlines()) == (1 if code else 0)


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_never_a_run_of_this_project(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, headline, err = diffed(capsys, corpus.foreign(name), corpus.junit(BASE))
    assert (code, err) == (3, "")
    assert headline.startswith(NOTHING)


def test_every_run_of_the_corpus_has_a_row() -> None:
    alone = (
        "dotted_folders dotted_folders_xunit2 inherited odd_ids groups_n2 phases subtests reruns crash_and_pass timeout"
    )
    made = {path.name for path in corpus.RUNS.iterdir()}
    assert made == {
        *ROWS,
        BASE,
        *alone.split(),
    }  # the last ones: suites/harness/baseline/reading/test_corpus_outcomes.py
    assert {path.name for path in corpus.FOREIGN.iterdir()} == FOREIGN.keys()
