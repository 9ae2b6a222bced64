"""A report as one page: no outside files, no network, readable without its script, which only sorts tables."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.nightly.blocks import Block, Page, Picture

_PACKAGE = "harness.nightly.output"
_BREAKS = re.compile(r"(/|::|_|\.)(?=\w)")


def render_html(page: Page) -> str:
    """The page; jinja2 escapes all that comes from tests."""
    environment = Environment(
        loader=PackageLoader(_PACKAGE, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["of_kind"] = lambda block, name: type(block).__name__ == name
    environment.filters |= {"drawn": _drawn, "broken": _broken}
    style, script = (files(_PACKAGE).joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "sort.js"))
    return environment.get_template("page.html").render(
        page=page,
        style=style,
        script=script,
        policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src '{_digest(script)}'",
    )


def _drawn(block: Block) -> str:
    """The SVG of a picture; matplotlib escapes its text."""
    assert isinstance(block, Picture)
    return block.draw()


def _broken(text: str) -> str:
    """A name, escaped, which a narrow column breaks where a reader would."""
    return _BREAKS.sub(r"\1<wbr>", html.escape(text))


def _digest(script: str) -> str:
    """What the page's policy knows its one script by; no other one runs, whatever a test is called."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
