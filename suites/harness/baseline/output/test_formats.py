"""Every format says the same, fits where it is shown, and takes nothing from a test's name as markup."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from markdown_it import MarkdownIt

from harness.baseline.changes import Change
from harness.baseline.diff import Diff, compare
from harness.baseline.outcomes import Outcome
from harness.baseline.output import FORMATS, render
from harness.baseline.output.github import MOST_OF_A_KIND
from harness.baseline.output.markdown import MOST_BYTES, code
from harness.baseline.output.wording import headline
from harness.baseline.run import Run
from harness.baseline.store import baseline_of
from suites.harness.baseline.made import TODAY, base_of, result, run_of
from suites.harness.baseline.test_diff import runs

FINE = [result(f"fine_{n}") for n in range(200)]
ODD = [
    "test[a|b]",
    "test[`tick`]",
    "test[``two`` @name]",
    "test[@octocat]",
    "test[#123]",
    "test[<script>alert(1)</script>]",
    "test[<img src=x>]",
    "test[**bold** _em_ [a](b) ![c](d)]",
    "test[&amp;]",
    "test[%0A::error::x]",
    "test[a,b:c]",
    "test[https://example.org www.example.org]",
    "test[`]",
    "test[-- > # 1. -]",
]


def odd() -> Diff:
    """Regressions whose names and reasons are made of markup."""
    red = [result(name, Outcome.FAIL, f"{name} again\nsecond line") for name in ODD]
    base = base_of(*FINE, *(result(name) for name in ODD))
    return compare(base, run_of(*FINE, *red, sources=("run `@me` <b>.xml",)), today=TODAY)


def many(count: int) -> Diff:
    """As many regressions and warnings."""
    fine = [result(f"fine_{n}") for n in range(4 * count)]
    old = [result(f"test_{n}") for n in range(2 * count)]
    red = [f._replace(outcome=Outcome.FAIL, fingerprints=("x",), message="why " * 20) for f in old[:count]]
    muted = [f._replace(outcome=Outcome.XFAIL, fingerprints=("x",)) for f in old[count:]]
    return compare(base_of(*fine, *old), run_of(*fine, *red, *muted), today=TODAY)


@given(runs, runs)
def test_all_formats_agree(one: Run, other: Run) -> None:
    diff = compare(baseline_of(one), other, today=TODAY)
    data = json.loads(render(diff, "json", show=3))
    assert data["headline"] == headline(diff)
    assert data["exit_code"] == diff.exit_code
    assert [change["id"] for change in data["changes"]] == [entry.id for entry in diff.entries]
    text = render(diff, "text", show=100)
    assert " ".join(text.split()).startswith(headline(diff))
    page, markdown = render(diff, "html", show=100), render(diff, "markdown", show=100)
    for entry in diff.entries:
        assert f"  {entry.id}\n" in text or entry.other is not None
        assert entry.id in page
        assert entry.id in markdown
    assert len(re.findall("^::error", render(diff, "github", show=100), re.MULTILINE)) == min(
        len(diff.gated) + len(diff.problems), MOST_OF_A_KIND
    )


def test_json_has_a_schema_version_and_every_count() -> None:
    data = json.loads(render(many(40), "json", show=1))
    assert data["schema_version"] == 1
    assert data["counts"] == {"regression": 40, "muted": 40, "same": 160}
    assert len(data["changes"]) == 80
    assert data["changes"][0]["command"] == "pytest t.py::test_0"


def test_text_fits_a_terminal_and_cuts_lists() -> None:
    text = render(many(41), "text", show=10)
    assert text.startswith("41 regressions, 41 muted\n")
    assert text.count("and 31 more") == 2
    commands = [line for line in text.splitlines() if "pytest " in line]
    assert len(commands) == 11  # one each, and one for all that are shown
    assert max(len(line) for line in text.splitlines() if line not in commands) <= 80


def test_each_regression_has_the_command_to_run_it_again() -> None:
    base = base_of(*FINE, result("test_a[x y'z]"))
    diff = compare(base, run_of(*FINE, result("test_a[x y'z]", Outcome.FAIL)), today=TODAY)
    assert """    pytest 't.py::test_a[x y'"'"'z]'\n""" in render(diff, "text", show=10)


def test_reasons_say_what_was_and_what_is() -> None:
    diff = compare(
        base_of(*FINE, result("a", Outcome.FAIL, "call: old")),
        run_of(*FINE, result("a", Outcome.FAIL, "call: new")),
        today=TODAY,
    )
    assert "    was call: old\n    now call: new\n" in render(diff, "text", show=10)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.codes: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - the base class names it
        self.tags.add(tag)
        if tag == "code":
            self._inside = True
            self.codes.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "code"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.codes[-1] += data


def test_markdown_shows_names_as_they_are() -> None:
    page = _Tags()
    page.feed(MarkdownIt("gfm-like", {"linkify": False}).render(render(odd(), "markdown", show=100)))
    assert page.tags <= {"h2", "h3", "p", "ul", "li", "code"}
    for name in ODD:
        assert f"t.py::{name}" in page.codes


@pytest.mark.parametrize("name", ODD)
def test_outside_of_code_no_name_is_left(name: str) -> None:
    text = render(odd(), "markdown", show=100)
    outside = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert not any(mark in outside for mark in ("@", "#1", "<b", "|", "octocat", "script"))
    assert code(name).strip("` ") == name.strip("` ")


def test_html_takes_nothing_as_markup() -> None:
    page = _Tags()
    page.feed(render(odd(), "html", show=100))
    assert not page.tags & {"script", "img", "b"}
    for name in ODD:
        assert f"t.py::{name}" in page.codes


def test_markdown_stays_within_githubs_bound() -> None:
    text = render(many(5000), "markdown", show=5000)
    assert len(text.encode("utf-8")) <= MOST_BYTES
    assert "## Failed: 5000 regressions, 5000 muted" in text
    assert re.search(r"and [\d,]+ more", text)


def test_markdown_of_a_run_with_endless_problems_stays_within_it_too() -> None:
    base = base_of(*FINE)
    run = run_of(*FINE, notes=tuple(f"note {n} " + "é" * 400 for n in range(2000)))
    assert len(render(compare(base, run, today=TODAY), "markdown", show=2000).encode("utf-8")) <= MOST_BYTES


def test_github_gets_ten_annotations_of_a_kind_and_they_are_escaped() -> None:
    lines = render(many(40), "github", show=100).splitlines()
    for kind in ("error", "warning"):
        assert len([line for line in lines if line.startswith(f"::{kind} ")]) == MOST_OF_A_KIND
    assert any(line.endswith("::and 31 more") for line in lines)
    assert lines[0].startswith("::error file=t.py,line=1,title=REGRESSION%3A passed%2C is red now::t.py::test_0%0A")
    assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in lines)
    escaped = render(odd(), "github", show=100).splitlines()
    assert all(line.startswith(("::error ", "::notice ")) for line in escaped)
    assert any("test[%250A::error::x]" in line for line in escaped)


@pytest.mark.parametrize("name", FORMATS)
def test_an_undecided_run_says_why_in_every_format(name: str) -> None:
    diff = compare(base_of(*FINE), run_of(*FINE[:5]), today=TODAY)
    text = render(diff, name, show=10)
    assert "are missing (98%, 10% allowed)" in text.replace("\n", " ").replace("%25", "%")
    assert Change.REMOVED.value.title not in text
