"""The command `harness report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli_baseline import BASELINES
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.baseline.store import Baseline
    from harness.nightly.night import Night
    from harness.nightly.nights import Nights

SUFFIXES = {"html": "html", "markdown": "md", "json": "json"}
"""What the files are called unless `--output` says it."""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report", epilog="Exit codes: 0 written, whatever it says; 2 usage, or no history.")(report_command)


def report_command(
    *,
    run: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="Folders of nights; or of `harness run`, results of tests, faults.json: one night."
        ),
    ],
    history: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take the nights before from here, and append these.")
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A recorded folder; baselines/<key> by default, if there is one."),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(metavar="FMT:PATH", help="html, markdown or json; by default all three, page.* beside the night."),
    ] = None,
) -> None:
    """Make the report of the newest night: one page, the same as Markdown, and as JSON."""
    from harness.nightly.output import render
    from harness.nightly.reading import read_nights
    from harness.nightly.sections import page_of
    from harness.nightly.view import view_of

    outputs = [_output(text) for text in output or []]
    nights = read_nights(run)
    newest = nights[-1]
    kept, differs = _kept(nights, history)
    page = page_of(view_of(newest, kept, baseline=_baseline(newest, baseline), differs=differs))
    for name, path in outputs or _default_outputs(newest):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(render(page, name), encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(got=f"{error.strerror}", expected="a file to write", where=f"{name}:{path}") from error
        print(f"{name}: {path}")
    encoding = sys.stdout.encoding or "utf-8"
    print(f"{page.state}: {page.headline}".encode(encoding, "backslashreplace").decode(encoding))


def _kept(nights: list[Night], path: Path | None) -> tuple[Nights, bool]:
    """The nights before, with these; and whether the history keeps other figures of the newest one.

    A night made of loose runs has no name of its own, and is not kept.
    """
    from harness.nightly.history import Appended, History
    from harness.nightly.nights import no_nights
    from harness.nightly.summary import summarise

    named = [night for night in nights if night.folder is not None]
    if path is None:
        kept = no_nights()
        for night in named:
            kept = kept.plus(summarise(night), night.suites.results if night.suites else {})
        return kept, False
    history = History(path)
    # A night under way is shown and not kept: what is kept is never written again.
    appended = {night.facts.stamp: history.append(night) for night in named if night.facts.ended}
    kept = history.nights() if path.exists() else no_nights()
    for night in named:
        if not night.facts.ended:
            kept = kept.plus(summarise(night), night.suites.results if night.suites else {})
    return kept, appended.get(nights[-1].facts.stamp) is Appended.OTHER


def _baseline(night: Night, path: Path | None) -> Baseline | None:
    from harness.baseline.store import read_baseline

    if path is not None:
        return read_baseline(path)
    folder = BASELINES / night.facts.key
    return read_baseline(folder) if night.facts.key and folder.is_dir() else None


def _default_outputs(night: Night) -> list[tuple[str, Path]]:
    folder = night.folder or Path("reports")
    return [(name, folder / f"page.{suffix}") for name, suffix in SUFFIXES.items()]


def _output(text: str) -> tuple[str, Path]:
    name, colon, path = text.partition(":")
    if name not in SUFFIXES or not colon or not path:
        expected = f"FORMAT:PATH with one of {', '.join(SUFFIXES)}, such as html:page.html"
        raise UsageError(got=f"--output {text}", expected=expected, where="report")
    return name, Path(path)
