"""The page in a real browser: nothing is asked of the network, tables sort, both themes, narrow screens, print, keys.

Screenshots are left in `reports/nightly-page/`, for people to look at.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from harness import cli
from harness.case import Case
from harness.catalogue import find_fault, find_property, find_subject
from harness.corpus import load_corpus
from harness.explain import draw, explain
from suites.harness.nightly.made import (
    BROKEN,
    DRIFTS,
    FLAKY,
    FLAKY_ON,
    NIGHTS,
    REGRESSES,
    SLOWER,
    TOKEN,
    VIOLATED,
    write_nights,
)
from suites.harness.peers.made import write_two_versions
from suites.repo import tree

SHOTS = tree.ROOT / "reports" / "nightly-page"
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")

_ENOUGH_CONTRAST = 4.5
"""Of text and ground, by WCAG 2.2 (1.4.3)."""

_CONTRASTS = """() => {
  const channel = c => c / 255 <= .03928 ? c / 255 / 12.92 : ((c / 255 + .055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
  const colour = text => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
  const over = (under, [r, g, b, a]) => [r, g, b].map((c, i) => c * a + under[i] * (1 - a));
  const ground = element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(colour(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce(over, [255, 255, 255]);
  };
  const found = {};
  for (const e of document.querySelectorAll("body *:not(script):not(svg):not(svg *)")) {
    const says = [...e.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!says || !e.getClientRects().length) continue;
    const both = [luminance(colour(getComputedStyle(e).color)), luminance(ground(e))].sort((x, y) => y - x);
    const name = `${e.tagName}.${e.className} in ${e.parentElement.className}`;
    found[name] = Math.min(found[name] ?? 99, (both[0] + .05) / (both[1] + .05));
  }
  return found;
}"""


_NAMED = {
    "table": "table:not(:has(caption))",
    "thead th": "thead th:not([scope=col])",
    "tbody tr": "tbody tr:not(:has(> th[scope=row]))",
    "img": "img:not([alt])",
    ".plot": ".plot > :not([role=img][aria-label])",
    "nav a": "nav a:not([href^='#'])",
}
"""What must be on the page, and the same without what a screen reader needs."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of fourteen nights, with the picture of its witness."""
    folder = tmp_path_factory.mktemp("nights")
    corpus = load_corpus(None)
    case, fault = Case.from_token(TOKEN), find_fault("C16")
    found = explain([find_property(VIOLATED)], find_subject("v4model"), case, corpus, fault=fault)
    draw(found, folder / "witness.svg")
    nights = write_nights(folder, picture=folder / "witness.svg")
    assert cli.run_cli(["report", *map(str, nights), "--history", str(folder / "history.sqlite")]) == 0
    return nights[-1] / "page.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a window."""
    with sync_playwright() as playwright:
        # Containers run as root, where Chromium's sandbox does not start; the page is our own file.
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@contextmanager
def opened(
    browser: Browser, path: Path, *, width: int = 1280, theme: Any = "light", scripts: bool = True
) -> Iterator[Page]:
    """The page, opened; whatever it says on the console or asks of a network is a failure."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, java_script_enabled=scripts, offline=True
    )
    page = context.new_page()
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("request", lambda request: told.append(request.url))
    page.goto(path.as_uri())
    yield page
    assert [text for text in told if not text.startswith(("data:", path.as_uri()))] == []
    context.close()


@pytest.mark.parametrize(
    ("name", "width", "theme"), [("desktop", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 390, "light")]
)
def test_it_fits_the_screen_and_can_be_read(name: str, width: int, theme: str, browser: Browser, path: Path) -> None:
    with opened(browser, path, width=width, theme=theme) as page:
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"{name}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        contrasts = page.evaluate(_CONTRASTS)
        assert len(contrasts) > 20
        assert {what: round(ratio, 2) for what, ratio in contrasts.items() if ratio < _ENOUGH_CONTRAST} == {}
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) == (theme == "dark")


def test_public_models_stand_in_a_table_with_their_versions(
    browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nights = write_nights(tmp_path, nights=2, tests=60)
    write_two_versions(nights)
    assert cli.run_cli(["report", *map(str, nights)]) == 0
    assert "page.html" in capsys.readouterr().out
    for name, width, theme in (("peers", 1280, "light"), ("peers-narrow", 390, "dark")):
        with opened(browser, nights[-1] / "page.html", width=width, theme=theme) as page:
            section = page.locator("#peers")
            row = section.locator("tbody tr", has_text="theirs-packed").first
            assert row.locator("td").all_inner_texts() == ["theirs 0.8.0", "0.7.0", "violated", "holds"]
            assert "0.8.0 fixes query_sees_only_its_sample on csa" in section.inner_text()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            contrasts = page.evaluate(_CONTRASTS)
            assert {what: ratio for what, ratio in contrasts.items() if ratio < _ENOUGH_CONTRAST} == {}
            SHOTS.mkdir(parents=True, exist_ok=True)
            section.screenshot(path=SHOTS / f"{name}.png")


def test_each_thing_stands_where_one_looks_for_it(browser: Browser, path: Path) -> None:
    with opened(browser, path) as page:
        assert page.locator("h1").inner_text().startswith("3 regressions, 1 flake, 1 error drifts")
        assert page.locator(".badge").inner_text() == "failed"
        assert page.locator(".card").first.inner_text().split("\n")[:3] == ["Red tests", "38", "+1 vs last night"]
        first = page.locator("#changes tbody tr").first
        assert first.locator("th").inner_text() == REGRESSES
        assert "REGRESSION" in first.inner_text()
        flaky = page.locator("#flakes tbody tr", has_text=FLAKY)
        assert [cell == "F" for cell in flaky.locator("td").all_inner_texts()[1:]] == [
            n in FLAKY_ON for n in range(NIGHTS)
        ]
        hole = flaky.locator("td").nth(1 + BROKEN)
        assert hole.get_attribute("title") == "infrastructure: 100% of the tests are red"
        assert hole.inner_text() == ""
        assert page.locator("#outcomes tbody tr").nth(NIGHTS - 1 - BROKEN).locator(".warn").count() == 1
        assert "infrastructure" in page.locator("#outcomes svg").text_content()
        assert page.locator("#numerics table.plain tbody th").inner_text() == DRIFTS
        assert DRIFTS in page.locator("#numerics svg").text_content()
        assert page.locator("#durations table.plain tbody th").first.inner_text() == SLOWER
        assert page.locator("#failures .lead").inner_text() == "38 red tests = 3 causes."
        picture = page.locator("#witnesses img")
        assert picture.evaluate("image => image.complete && image.naturalWidth > 500")
        assert page.locator("#machine table").count() == 2
        assert "739950" in page.locator("#provenance dl").inner_text()


def test_tables_sort_by_number_and_by_name_from_the_keyboard(browser: Browser, path: Path) -> None:
    with opened(browser, path) as page:
        table = page.locator("#durations table").last
        usually = table.get_by_role("button", name="usually")

        def column(number: int) -> list[float]:
            values = table.locator(f"tbody tr > :nth-child({number})")
            return [float(value) for value in values.evaluate_all("cells => cells.map(cell => cell.dataset.value)")]

        usually.focus()
        page.keyboard.press("Enter")
        assert column(4) == sorted(column(4), reverse=True)
        assert usually.locator("..").get_attribute("aria-sort") == "descending"
        page.keyboard.press("Enter")
        assert column(4) == sorted(column(4))
        table.get_by_role("button", name="test").click()
        table.get_by_role("button", name="test").click()
        names = table.locator("tbody th").all_inner_texts()
        numbers = [int(found[1]) for name in names if (found := re.search(r"plain\[(\d+)\]", name))]
        assert numbers == sorted(numbers)
        assert table.locator("[aria-sort]").count() == 1


def test_it_is_whole_without_scripts(browser: Browser, path: Path) -> None:
    with opened(browser, path, scripts=False) as page:
        assert page.locator("thead button").count() == 0
        for name in (REGRESSES, FLAKY, SLOWER):
            assert page.get_by_text(name).first.is_visible()
        assert page.locator("section").count() == 11


def test_keys_and_screen_readers_find_their_way(browser: Browser, path: Path) -> None:
    with opened(browser, path) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
        assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
        assert page.evaluate("document.documentElement.lang") == "en"
        levels = page.locator("h1, h2, h3").evaluate_all("all => all.map(one => Number(one.tagName[1]))")
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(two <= one + 1 for one, two in pairwise(levels))
        for what, without in _NAMED.items():
            assert page.locator(what).count() > 0, what
            assert page.locator(without).count() == 0, without
        # What scrolls can be reached and scrolled by keys.
        scrolling = page.locator(".scroll").evaluate_all("all => all.filter(one => one.tabIndex !== 0).length")
        assert scrolling == 0
        for link in page.locator("a[href^='#']").evaluate_all("all => all.map(one => one.getAttribute('href'))"):
            assert page.locator(link).count() == 1, link


def test_print_shows_all_and_no_navigation(browser: Browser, path: Path) -> None:
    with opened(browser, path) as page:
        page.emulate_media(media="print")
        assert not page.locator("nav").is_visible()
        assert page.locator("h1").is_visible()
        page.pdf(path=SHOTS / "print.pdf", format="A4")
        assert (SHOTS / "print.pdf").read_bytes().startswith(b"%PDF")
