"""The files of a baseline: small, sorted, the same again, and refused when they are damaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.baseline.identity import normal
from harness.baseline.outcomes import Outcome
from harness.baseline.store import EXCEPTIONS, TESTS, Baseline, Blessing, baseline_of, read_baseline, render
from harness.baseline.store import write_baseline as write
from harness.errors import BaselineError
from suites.harness.baseline.made import base_of, result, run_of

FACTS = {"device": "cpu", "dtype": "float64", "torch": "2.13.0", "python": "3.11", "seed": "derandomized"}

texts = st.text(max_size=20).map(normal)
results = st.builds(
    lambda name, outcome, why: result(name, outcome, why)._replace(id=f"t.py::{name}"),
    texts,
    st.sampled_from([Outcome.PASS, Outcome.FAIL, Outcome.SKIP, Outcome.XFAIL, Outcome.ERROR_TEARDOWN]),
    texts.filter(lambda text: text.strip() == text),
)


def _baseline() -> Baseline:
    run = run_of(
        result("b"),
        result("a", Outcome.FAIL, "call: ValueError: no"),
        result("c")._replace(repeated=True),
        facts=FACTS,
        commit="abc123",
        started="2026-11-29T10:00:00+00:00",
        selection="suites",
    )
    blessing = Blessing(reason="known", issue="#7", since="2026-11-29")
    return replace(baseline_of(run), blessings={"t.py::a": blessing, "t.py::c": blessing})


def test_the_files_are_sorted_and_a_plain_pass_has_no_line() -> None:
    files = render(_baseline())
    assert files[TESTS] == "t.py::a\nt.py::b\nt.py::c\n"
    header = [line for line in files[EXCEPTIONS].splitlines() if line.startswith("# ")]
    assert header == [
        "# format: 1",
        "# key: cpu-float64-torch2.13.0-python3.11",
        "# commit: abc123",
        "# date: 2026-11-29",
        "# selection: suites",
        "# ids: files",
        "# tests: 3",
        "# device: cpu",
        "# dtype: float64",
        "# torch: 2.13.0",
        "# python: 3.11",
        "# seed: derandomized",
    ]
    assert files[EXCEPTIONS].splitlines()[len(header) :] == [
        "fail\tt.py::a\tcall: ValueError: no\tknown\t#7\t2026-11-29",
        "pass\tt.py::c\trepeated\tknown\t#7\t2026-11-29",
    ]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write(_baseline(), tmp_path)
    found = read_baseline(tmp_path)
    assert render(found) == render(_baseline())
    assert found.facts == FACTS
    assert found.blessings == _baseline().blessings
    assert sorted(path.name for path in tmp_path.iterdir()) == [EXCEPTIONS, TESTS]


@given(st.lists(results, max_size=8, unique_by=lambda found: found.id))
def test_any_names_and_reasons_go_both_ways(tmp_path_factory: pytest.TempPathFactory, found: list) -> None:  # type: ignore[type-arg]
    folder = tmp_path_factory.mktemp("baseline")
    base = base_of(*found)
    write(base, folder)
    read = read_baseline(folder)
    assert {i: (r.outcome, r.reason, r.repeated) for i, r in read.results.items()} == {
        i: (r.outcome, r.reason, r.repeated) for i, r in base.results.items()
    }


DAMAGE: dict[str, tuple[str, Callable[[str], str], str]] = {
    "a test twice": (TESTS, lambda text: "t.py::a\n" + text, "3 sorted ids, each once"),
    "unsorted": (TESTS, lambda text: "".join(reversed(text.splitlines(keepends=True))), "sorted ids"),
    "a test missing": (TESTS, lambda text: text.replace("t.py::b\n", ""), "3 sorted ids"),
    "a conflict of merging": (EXCEPTIONS, lambda text: text + "<<<<<<< HEAD\n", "outcome, id, fingerprint"),
    "an unknown outcome": (EXCEPTIONS, lambda text: text.replace("fail\t", "failed\t"), "outcome, id, fingerprint"),
    "a column missing": (EXCEPTIONS, lambda text: text.replace("\t#7", ""), "outcome, id, fingerprint"),
    "an id of no test": (EXCEPTIONS, lambda text: text.replace("t.py::a", "t.py::z"), "an id of tests.txt"),
    "another format": (EXCEPTIONS, lambda text: text.replace("format: 1", "format: 2"), "format 1"),
    "no day": (EXCEPTIONS, lambda text: text.replace("# date: 2026-11-29", "# date: 2026-13-29"), "a day as YYYY"),
    "no header": (EXCEPTIONS, lambda _: "", "format 1"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_baseline_is_one_sentence(name: str, tmp_path: Path) -> None:
    file, damage, words = DAMAGE[name]
    write(_baseline(), tmp_path)
    (tmp_path / file).write_text(damage((tmp_path / file).read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(BaselineError, match=words) as caught:
        read_baseline(tmp_path)
    assert str(tmp_path / file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_one_that_is_no_text_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match="a baseline's file"):
        read_baseline(tmp_path)
    write(_baseline(), tmp_path)
    (tmp_path / TESTS).write_bytes(b"\xff\n")
    with pytest.raises(BaselineError, match="a baseline's file"):
        read_baseline(tmp_path)
