"""Page, Markdown and JSON: they say the same, stay within bounds, and take nothing that a test is called as markup."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from harness.nightly.blocks import Card, Cell, Group, Page, Pairs, Picture, Section, Table, Witness
from harness.nightly.output import FORMATS, render
from harness.nightly.output.markdown import MOST_BYTES
from suites.harness.nightly.made import DRIFTS, FLAKY, REGRESSES, write_nights
from suites.harness.nightly.views import page
from suites.repo import tree

ODD = (
    "test[<script>alert(1)</script>]",
    "test[<img src=x onerror=alert(1)>]",
    "test[a|b]",
    "test[`tick`]",
    "test[@octocat #1]",
    "test[]]>&amp;]",
    "test[\"quoted' ]",
)


def odd_page(*, rows: int = 1) -> Page:
    """Every kind of block, with odd names wherever a name may stand."""
    table = Table(
        caption=f"caption {ODD[0]}",
        columns=("name", ODD[3]),
        rows=[[Cell(name, code=True), Cell(name, title=name, value=float(n))] for n, name in enumerate(ODD)] * rows,
    )
    blocks = [
        table,
        Picture(name="p", says=f"says {ODD[1]}", draw=lambda: "<svg></svg>"),
        *(Witness(title=name, sentence=name, command=name) for name in ODD),
        *(Group(title=name, items=ODD, detail=name, hidden=1) for name in ODD),
        Pairs(pairs=[(f"pair{n}", name) for n, name in enumerate(ODD)]),
    ]
    return Page(
        title="Night",
        state="failed",
        headline=f"Nothing can be decided: {ODD[0]}",
        context=" ".join(ODD),
        cards=[Card(label="Red tests", value="1", tone="bad", deltas=[("+1 vs last night", "bad")], link="s")],
        sections=[Section(id="s", title="Section", lead=f"lead of {ODD[4]}", blocks=blocks, tone="bad")],
    )


class _Page(HTMLParser):
    """Tags, and the text that a reader sees."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(text: str) -> _Page:
    """A parsed page."""
    found = _Page()
    found.feed(text)
    return found


def test_the_page_takes_nothing_as_markup() -> None:
    text = render(odd_page(), "html")
    assert text.count("<script") == text.count("</script>") == 1
    found = parsed(text)
    assert "img" not in found.tags
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    for name in ODD:
        assert name in found.text


def test_markdown_takes_nothing_as_markup() -> None:
    text = render(odd_page(), "markdown")
    found = parsed(MarkdownIt("gfm-like", {"linkify": False}).render(text))
    assert found.tags <= set("h2 h3 p ul li code table thead tbody tr th td details summary".split())
    outside = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert not any(mark in outside for mark in ("@octocat", "#1", "<img", "<script"))
    for name in ODD:
        assert " ".join(name.split()) in found.text.replace("\\|", "|")


def test_markdown_stays_within_githubs_bound() -> None:
    text = render(odd_page(rows=20_000), "markdown")
    assert len(text.encode("utf-8")) <= MOST_BYTES
    assert re.search(r"and [\d,]+ more", text)
    wide = Cell("é" * 3000)
    sections = [Section(id=f"s{n}", title="S", lead="", blocks=[Table(caption="c", columns=("a",), rows=[[wide]] * 60)])
                for n in range(20)]  # fmt: skip
    big = Page(title="", state="passed", headline="fine", context="c", cards=[], sections=sections)
    assert len(render(big, "markdown").encode("utf-8")) <= MOST_BYTES


def test_json_is_json_whatever_was_measured() -> None:
    rows = [[Cell("a", value=float("inf")), Cell("nan", value=float("nan")), Cell("1", value=1.0)]]
    sections = [Section(id="s", title="S", lead="", blocks=[Table(caption="c", columns=("a", "b", "c"), rows=rows)])]
    told = Page(title="", state="passed", headline="", context="", cards=[], sections=sections)
    (block,) = json.loads(render(told, "json"))["sections"][0]["blocks"]
    assert block["rows"] == [["a", "nan", 1.0]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of fourteen nights."""
    return page(write_nights(tmp_path_factory.mktemp("nights"), tests=120))


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_tells_the_regression_the_flake_and_the_drift(name: str, told: Page) -> None:
    text = render(told, name)
    found = parsed(text).text if name == "html" else text
    for word in (
        told.headline,
        REGRESSES,
        FLAKY,
        DRIFTS,
        "infrastructure: 100% of the tests are red",
        "38 red tests = 3 causes",
    ):
        assert word in found.replace("&#x5F;", "_"), word  # fmt: skip


def test_a_page_is_the_same_each_time_and_no_two_names_in_it_are(told: Page) -> None:
    text = render(told, "html")
    assert render(told, "html") == text
    names = re.findall(r'\sid="([^"]+)"', text)
    assert len(names) == len(set(names))
    inside = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    assert inside <= set(names)


def test_plots_follow_the_theme(told: Page) -> None:
    text = render(told, "html")
    assert "#0a0b" not in text
    defined = set(re.findall(r"(--[a-z-]+):", tree.text("harness/nightly/output/page.css")))
    assert set(re.findall(r"var\((--[a-z-]+)\)", text)) <= defined
    assert not re.findall(r"<(?:metadata|\?xml|!DOCTYPE svg)", text)
