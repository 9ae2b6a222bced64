"""A comparison as one page without scripts or outside files; jinja2 escapes all that comes from tests."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.baseline.changes import Level
from harness.baseline.diff import Diff
from harness.baseline.output.wording import commands, context, cut, groups, headline, more, said, verdict


def render_html(diff: Diff, *, show: int) -> str:
    """The page."""
    environment = Environment(
        loader=PackageLoader("harness.baseline.output", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    listed = [
        {
            "title": group.title,
            "total": f"{group.total:,}",
            "level": "gate" if group.gated else group.change.level.value,
            "open": group.gated or group.change.level is Level.WARN,
            "more": more(group),
            "tests": [
                {"id": entry.id, "said": said(entry, diff), "command": entry.command if group.gated else None}
                for entry in group.entries
            ],
        }
        for group in groups(diff, show=show)
    ]
    return environment.get_template("page.html").render(
        headline=headline(diff),
        verdict=verdict(diff),
        context=context(diff),
        state={0: "passed", 1: "failed", 3: "undecided"}[diff.exit_code],
        problems=cut([problem.sentence for problem in diff.problems], show=show),
        notes=cut(diff.notes, show=show),
        groups=listed,
        again=commands(diff, show=show),
    )
