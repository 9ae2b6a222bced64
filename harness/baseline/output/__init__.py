"""A comparison as text, JSON, Markdown, HTML and GitHub annotations; all of them say the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from harness.baseline.diff import Diff
from harness.baseline.output.github import render_github
from harness.baseline.output.json_report import render_json
from harness.baseline.output.markdown import render_markdown
from harness.baseline.output.text import render_text

FORMATS = ("text", "json", "markdown", "html", "github")


def render(diff: Diff, name: str, *, show: int) -> str:
    """The comparison in one of FORMATS; lists longer than show are cut and say how much was left out."""
    if name == "html":
        from harness.baseline.output.html import render_html  # jinja2 takes longer to import than all the rest

        return render_html(diff, show=show)
    return _RENDERERS[name](diff, show=show)


_RENDERERS: Mapping[str, Callable[..., str]] = MappingProxyType(
    {"text": render_text, "json": render_json, "markdown": render_markdown, "github": render_github}
)
