"""JUnit of all kinds, against junitparser where that reads it, and damaged in every way a file can be."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from junitparser import Error, Failure, JUnitXml, Skipped
from junitparser import TestCase as Case
from junitparser import TestSuite as Suite

from harness.baseline.diff import compare
from harness.baseline.outcomes import RED, Outcome
from harness.baseline.output import render
from harness.baseline.reading import read_run
from harness.baseline.store import baseline_of
from suites.harness.baseline import corpus
from suites.harness.baseline.made import TODAY, case_xml, write_xml

PLAIN = "base base_n2 base_xunit2 one_broken gated phases timeout skipped_module".split()


@pytest.mark.parametrize("name", PLAIN)
def test_junitparser_counts_the_same(name: str) -> None:
    """An independent reader of the same file."""
    cases = [case for suite in JUnitXml.fromfile(corpus.junit(name)) for case in suite]
    red = {(case.classname, case.name) for case in cases if any(isinstance(r, (Failure, Error)) for r in case.result)}
    idle = {(case.classname, case.name) for case in cases if any(isinstance(r, Skipped) for r in case.result)}
    run = read_run([corpus.junit(name)])
    assert len(run.results) == len({(case.classname, case.name) for case in cases})
    assert sum(found.outcome in RED for found in run.results.values()) == len(red)
    waiting = {Outcome.SKIP, Outcome.XFAIL}
    assert sum(found.outcome in waiting for found in run.results.values()) == len(idle)


def test_what_junitparser_writes_is_read(tmp_path: Path) -> None:
    case = Case("test_a", classname="t.TestB")
    case.result = [Failure("assert 1 == 2", "AssertionError")]
    suite = Suite("foreign")
    suite.add_testcases([case, Case("test_c", classname="t.TestB")])
    xml = JUnitXml()
    xml.add_testsuite(suite)
    xml.write(str(tmp_path / "run.xml"))
    run = read_run([str(tmp_path / "run.xml")])
    assert run.results["t.TestB::test_a"].fingerprints == ("call: AssertionError: assert # == #",)
    assert run.results["t.TestB::test_c"].outcome is Outcome.PASS


def _whole(tmp_path: Path) -> bytes:
    return Path(write_xml(tmp_path / "run.xml", *(case_xml(f"test_{n}") for n in range(30)))).read_bytes()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_a_problem_that_counts_what_it_read(share: float, tmp_path: Path) -> None:
    text = _whole(tmp_path)
    (tmp_path / "cut.xml").write_bytes(text[: int(share * len(text))])
    run = read_run([str(tmp_path / "cut.xml")])
    (problem,) = run.problems
    assert problem.kind == "unreadable"
    assert len(run.results) == text[: int(share * len(text))].count(b"</testcase>")
    assert share == 0 or f"{len(run.results)} testcase" in problem.sentence


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text + text, "something follows the end of the XML's root"),
        (lambda text: text + b"<more/>", "something follows the end of the XML's root"),
        (lambda text: text.replace(b"test_7", b"\xff\xfe"), "not well-formed"),
        (lambda text: text.replace(b"test_7", b"\x00"), "not well-formed"),
        (lambda text: text.replace(b"test_7", b"&nbsp;"), "undefined entity"),
        (lambda _: b"", "the file is empty"),
        (lambda _: b'<?xml version="1.0" encoding="no-such"?><testsuite/>', "unknown encoding"),
        (lambda _: b"\x00\x01\x02" * 100, "no XML"),
        (lambda _: b"{}", "no XML"),
    ],
)
def test_a_damaged_file_is_a_problem(damage: object, words: str, tmp_path: Path) -> None:
    assert callable(damage)
    (tmp_path / "bad.xml").write_bytes(damage(_whole(tmp_path)))
    (problem,) = read_run([str(tmp_path / "bad.xml")]).problems
    assert words in problem.sentence
    assert "bad.xml" in problem.sentence


def test_a_damaged_archive_is_a_problem(tmp_path: Path) -> None:
    packed = gzip.compress(_whole(tmp_path))
    for name, content in (("cut.xml.gz", packed[:-40]), ("none.xml.gz", b"no archive"), ("empty.xml.gz", b"")):
        (tmp_path / name).write_bytes(content)
        assert [problem.kind for problem in read_run([str(tmp_path / name)]).problems] == ["unreadable"]


def test_a_folder_with_a_files_name_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "run.xml").mkdir()
    assert [problem.kind for problem in read_run([str(tmp_path / "run.xml")]).problems] == ["absent"]


def test_entities_are_refused_before_they_grow() -> None:
    run = read_run([corpus.foreign("entities.xml")])
    assert run.results == {}
    assert "refused" in run.problems[0].sentence


def test_other_encodings_are_read(tmp_path: Path) -> None:
    for encoding in ("utf-16", "iso-8859-1", "utf-8-sig"):
        declared = encoding.removesuffix("-sig")
        text = f'<?xml version="1.0" encoding="{declared}"?><testsuite><testcase classname="t" name="é"/></testsuite>'
        (tmp_path / "run.xml").write_bytes(text.encode(encoding))
        assert list(read_run([str(tmp_path / "run.xml")]).results) == ["t::é"]


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        ("2026-11-20T10:00:00+02:00", "2026-11-20T08:00:00+00:00"),
        ("2026-11-20T10:00:00", "2026-11-20T10:00:00+00:00"),
        ("2026-11-20T10:00:00.123456Z", "2026-11-20T10:00:00+00:00"),
        ("yesterday", ""),
        ("", ""),
    ],
)
def test_time_stamps_are_naive_aware_or_none(stamp: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "run.xml").write_text(f'<testsuite timestamp="{stamp}"><testcase name="a"/></testsuite>')
    assert read_run([str(tmp_path / "run.xml")]).started == expected


def test_the_last_testcase_says_whether_pytest_may_have_stopped(tmp_path: Path) -> None:
    fine, red = case_xml("test_a"), case_xml("test_b", Outcome.FAIL)
    assert read_run([write_xml(tmp_path / "run.xml", fine, red)]).ends_red
    assert not read_run([write_xml(tmp_path / "run.xml", red, fine)]).ends_red


BASE_XML, BASE_LINES = Path(corpus.junit("phases")).read_bytes(), Path(corpus.lines("phases")).read_bytes()


@given(
    st.sampled_from([(BASE_XML, "xml"), (BASE_LINES, "jsonl")]),
    st.integers(0, 4000),
    st.integers(0, 60),
    st.sampled_from(
        [b"", b"<", b">", b'"', b"&", b"\x00", b"\xff", b"{", b"null", b"9" * 5000, b"<testcase/>", b"]]>"]
    ),
)
def test_nothing_that_a_file_contains_raises(
    tmp_path_factory: pytest.TempPathFactory, source: tuple[bytes, str], start: int, length: int, put: bytes
) -> None:
    text, suffix = source
    file = tmp_path_factory.mktemp("damaged") / f"run.{suffix}"
    file.write_bytes(text[:start] + put + text[start + length :])
    run = read_run([str(file)])
    render(compare(baseline_of(run), run, today=TODAY), "text", show=3)


def test_an_id_of_a_megabyte_and_a_message_of_ten_are_read(tmp_path: Path) -> None:
    long = case_xml("x" * 1_000_000)
    loud = case_xml("test_b", Outcome.FAIL).replace("/></testcase>", ">" + "y" * 10_000_000 + "</failure></testcase>")
    run = read_run([write_xml(tmp_path / "run.xml", long, loud)])
    assert len(run.results) == 2
    assert run.problems == ()
    assert max(map(len, run.results)) <= 400
