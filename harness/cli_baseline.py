"""The commands `harness diff-baseline` and `harness record-baseline`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.errors import BaselineError, UsageError

if TYPE_CHECKING:
    from harness.baseline.changes import Change
    from harness.baseline.diff import Diff
    from harness.baseline.run import Run
    from harness.baseline.store import Baseline

BASELINES = Path("baselines")

RunArgument = Annotated[
    list[str], typer.Argument(metavar="RUN...", help="One run: JUnit .xml, .xml.gz, our .jsonl; folders; globs.")
]
KeyOption = Annotated[
    str | None, typer.Option("--key", metavar="NAME", help="The configuration, for a run that does not say its own.")
]
ExitCodeOption = Annotated[
    int | None, typer.Option("--exit-code", metavar="N", help="What pytest returned, where the run does not say it.")
]
ShardsOption = Annotated[int | None, typer.Option("--shards", min=1, help="How many files the run must have.")]
ShowOption = Annotated[int, typer.Option("--show", min=1, help="The most tests that are listed of each class.")]
MissingOption = Annotated[
    float, typer.Option("--max-missing", min=0, max=100, metavar="PERCENT", help="More missing tests: a partial run.")
]
SkippedOption = Annotated[
    float, typer.Option("--max-skipped", min=0, max=100, metavar="PERCENT", help="More newly skipped: invalid.")
]
FailingOption = Annotated[
    float, typer.Option("--max-failing", min=0, max=100, metavar="PERCENT", help="More red: infrastructure.")
]


def add_to(app: typer.Typer) -> None:
    """Add both commands."""
    epilog = "Exit codes: 0 nothing gates; 1 a gated change; 2 usage; 3 an invalid, partial or incomparable run."
    app.command("diff-baseline", epilog=epilog)(diff_command)
    app.command("record-baseline", epilog=epilog)(record_command)


def diff_command(
    *,
    run: RunArgument,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="A recorded folder, or another run's file; baselines/<key> by default."),
    ] = None,
    key: KeyOption = None,
    format: Annotated[str, typer.Option(metavar="NAME", help="text, json, markdown, html or github.")] = "text",
    output: Annotated[
        list[str] | None, typer.Option(metavar="FMT:PATH", help="Write it in this format too; may be repeated.")
    ] = None,
    fail_on: Annotated[
        str, typer.Option(metavar="CLASS,...", help="Classes that gate besides those that always do: removed, ...")
    ] = "",
    rerun: Annotated[
        list[str] | None, typer.Option(metavar="RUN", help="A second run of the regressions alone; may be repeated.")
    ] = None,
    exit_code: ExitCodeOption = None,
    shards: ShardsOption = None,
    show: ShowOption = 10,
    max_missing: MissingOption = 10,
    max_skipped: SkippedOption = 50,
    max_failing: FailingOption = 80,
    max_age: Annotated[
        int | None, typer.Option("--max-age", min=0, metavar="DAYS", help="The oldest baseline that counts.")
    ] = None,
) -> None:
    """Compare a run of tests with what main gave: what went red, silent or missing."""
    from harness.baseline.diff import compare
    from harness.baseline.output import render
    from harness.baseline.reading import read_run
    from harness.baseline.validity import Limits

    outputs = [_output(text) for text in output or []]
    _known_format(format)
    gates = _classes(fail_on)
    limits = Limits(missing=max_missing, skipped=max_skipped, failing=max_failing, oldest_days=max_age)
    with _comparing():
        found = read_run(run, shards=shards, exit_code=exit_code)
        base = _baseline(baseline, found, key)
        again = read_run(rerun) if rerun else None
        diff = compare(base, found, today=_today(), key=key, limits=limits, fail_on=gates, rerun=again)
        _say(render(diff, format, show=show))
        for name, path in outputs:
            _write(diff, name, path, show=show)
    raise typer.Exit(diff.exit_code)


def record_command(
    *,
    run: RunArgument,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why main may be like this from now on.")],
    to: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The baseline's folder; baselines/<key> by default.")
    ] = None,
    issue: Annotated[str, typer.Option(metavar="REF", help="Where the red tests are discussed.")] = "",
    key: KeyOption = None,
    exit_code: ExitCodeOption = None,
    shards: ShardsOption = None,
    show: ShowOption = 10,
    max_missing: MissingOption = 10,
    max_skipped: SkippedOption = 50,
    max_failing: FailingOption = 80,
) -> None:
    """Make a run the baseline: print what changes by it, refuse a run that is invalid."""
    from harness.baseline.key import key_of
    from harness.baseline.output.text import render_text
    from harness.baseline.reading import read_run
    from harness.baseline.record import existing_baseline, prepare, record
    from harness.baseline.validity import Limits

    if not reason.strip():
        raise UsageError(got="an empty --reason", expected="why main may be like this", where="record-baseline")
    limits = Limits(missing=max_missing, skipped=max_skipped, failing=max_failing)
    with _comparing():
        found = read_run(run, shards=shards, exit_code=exit_code)
        folder = to or _default_folder(found, key)
        base = existing_baseline(folder, key=key or key_of(found.facts))
        diff = prepare(found, base, today=_today(), key=key, limits=limits)
        conclusion = None if diff.problems else "recording makes this the baseline"
        _say(render_text(diff, show=show, conclusion=conclusion))
        if diff.problems:
            raise BaselineError(got="a run that is no baseline", expected="a valid one, see above", where=str(folder))
        try:
            changed = record(found, base, folder, key=key, reason=reason.strip(), issue=issue.strip())
        except OSError as error:
            raise UsageError(got=str(error.strerror), expected="a folder to write to", where=str(folder)) from error
    print(f"\nRecorded in {folder}." if changed else f"\nNothing to record: {folder} says this already.")


@contextmanager
def _comparing() -> Iterator[None]:
    """A baseline that is missing or damaged is one sentence and exit code 3.

    The collector of cycles rests: results hold none, and looking through 100,000 of them again and again takes a
    quarter of the time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    except BaselineError as error:
        print(f"harness: {error}", file=sys.stderr)
        raise typer.Exit(3) from error
    finally:
        if collects:
            gc.enable()


def _baseline(place: str | None, run: Run, key: str | None) -> Baseline:
    """What to compare with: a recorded folder, or another run."""
    from harness.baseline.key import key_of
    from harness.baseline.reading import read_run
    from harness.baseline.store import EXCEPTIONS, Baseline, baseline_of, read_baseline

    if place is None:
        if run.problems and key_of(run.facts) is None and key is None:
            return Baseline(results={}, source="no baseline")  # the run's own problems are what there is to say
        return read_baseline(_recorded(_default_folder(run, key)))
    if not Path(place).exists():
        raise UsageError(got=f"--baseline {place}", expected="a recorded folder or a run's file", where="diff-baseline")
    if (Path(place) / EXCEPTIONS).exists():
        return read_baseline(Path(place))
    found = read_run([place])
    if found.problems or not found.results:
        got = found.problems[0].sentence if found.problems else "no test"
        raise BaselineError(got=got, expected="a recorded folder or a whole run", where=f"--baseline {place}")
    return baseline_of(found)


def _default_folder(run: Run, key: str | None) -> Path:
    from harness.baseline.key import checked_key, key_of

    name = key_of(run.facts) if key is None else checked_key(key)
    if name is None and run.problems:
        raise BaselineError(got=run.problems[0].sentence, expected="a whole run", where=", ".join(run.sources))
    if name is None:
        raise UsageError(
            got="a run that does not say its configuration",
            expected="--key NAME, or the path of a baseline",
            where=", ".join(run.sources),
        )
    return BASELINES / name


def _recorded(folder: Path) -> Path:
    if folder.is_dir():
        return folder
    there = ", ".join(sorted(path.name for path in BASELINES.glob("*") if path.is_dir())) or "none"
    raise BaselineError(
        got=f"no baseline {folder}",
        expected=f"a recorded one (there: {there}); harness record-baseline makes it",
        where="diff-baseline",
    )


def _output(text: str) -> tuple[str, Path]:
    name, colon, path = text.partition(":")
    if not colon or not path:
        raise UsageError(got=f"--output {text}", expected="FORMAT:PATH, such as markdown:summary.md", where="--output")
    _known_format(name)
    return name, Path(path)


def _known_format(name: str) -> None:
    from harness.baseline.output import FORMATS

    if name not in FORMATS:
        raise UsageError(got=f"format {name!r}", expected=f"one of {', '.join(FORMATS)}", where="diff-baseline")


def _classes(text: str) -> frozenset[Change]:
    from harness.baseline.changes import Change

    known = {change.word: change for change in Change if change is not Change.SAME}
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in known:
            raise UsageError(got=f"--fail-on {word}", expected=f"some of {', '.join(known)}", where="diff-baseline")
    return frozenset(known[word] for word in words)


def _say(text: str) -> None:
    """Print text that may hold any character on a terminal that may not."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), end="")


def _write(diff: Diff, name: str, path: Path, *, show: int) -> None:
    from harness.baseline.output import render

    try:
        path.write_text(render(diff, name, show=show), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        got = f"{error.strerror}"
        raise UsageError(got=got, expected="a file to write", where=f"--output {name}:{path}") from error


def _today() -> date:
    return datetime.now(UTC).date()
