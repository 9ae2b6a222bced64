"""A report as one page, as Markdown and as JSON; all of them say the same."""

from __future__ import annotations

from harness.nightly.blocks import Page
from harness.nightly.output.json_page import render_json
from harness.nightly.output.markdown import render_markdown

FORMATS = ("html", "markdown", "json")


def render(page: Page, name: str) -> str:
    """The report in one of FORMATS."""
    if name == "html":
        from harness.nightly.output.html import render_html  # jinja2 and matplotlib, which the others do without

        return render_html(page)
    return render_markdown(page) if name == "markdown" else render_json(page)
