"""The command `harness nightly`."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.conduct.record import NightRecord
    from harness.conduct.turns import Listener

NIGHTS = Path("reports/nights")
PAGES = {"html": "page.html", "markdown": "page.md", "json": "page.json"}
REPORT = (sys.executable, "-m", "harness", "report")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "nightly",
        epilog="Exit codes: 0 nothing gated in what ran; 1 something is; 2 usage; 3 something could not be decided; "
        "130 interrupted, and --resume goes on.",
    )(nightly_command)


def nightly_command(
    *,
    night: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="With --resume: the night's folder, not the newest one.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a night that was stopped.")] = False,
    budget: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time for all stages together: 10m, 2h, 1h30m; none (default): all of it."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of everything that is drawn; a new one by default.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; as many as processors by default.")] = None,
    nights: Annotated[Path, typer.Option(metavar="DIR", help="Where the folders of nights are.")] = NIGHTS,
    history: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The nights before; history.sqlite beside the nights by default."),
    ] = None,
) -> None:
    """Run suites, fuzz, ranks, the kill matrix and odds in the time there is, and make the page of the night."""
    from harness.conduct.begin import check_same, new_record
    from harness.conduct.budget import read_budget, told
    from harness.conduct.record import held, new_folder, newest_unfinished, read_record
    from harness.conduct.stages import stages
    from harness.conduct.turns import Conductor

    if resume and (budget, seed) != (None, None):
        raise UsageError(got="--budget or --seed", expected="neither: a night keeps its own", where="--resume")
    if night is not None and not resume:
        raise UsageError(got=str(night), expected="--resume before a night's folder", where="nightly")
    if resume:
        folder = night or newest_unfinished(nights)
        read_record(folder)
    else:
        budget_s = read_budget(budget or "none")
        drawn = secrets.randbelow(1 << 32) if seed is None else seed
        folder = new_folder(nights)
        new_record(seed=drawn, budget_s=budget_s).write(folder)
    with held(folder):
        record = read_record(folder)
        if record.ended is None:
            check_same(record, folder)
        limit = "no limit" if record.left_s is None else f"{told(max(record.left_s, 0))} left"
        print(f"{folder}: seed {record.seed}, {limit}", flush=True)
        to_run = stages(
            folder,
            seed=record.seed,
            jobs=jobs or len(os.sched_getaffinity(0)),
            is_whole=record.budget_s is None,
            rows=_rows,
            faults=_faults,
        )
        with _telling() as listener:
            conductor = Conductor(folder, record, listener)
            try:
                conductor.conduct(to_run)
            except KeyboardInterrupt:
                print(f"harness: interrupted; harness nightly --resume {folder} goes on", file=sys.stderr)
                raise
        raise typer.Exit(_end(folder, conductor.record, history or nights / "history.sqlite"))


def _rows() -> list[str]:
    from harness.matrix.run import row_names

    return row_names()


def _faults() -> list[str]:
    from harness.faults.registry import load_faults

    return [fault.name for fault in load_faults()]


def _end(folder: Path, record: NightRecord, history: Path) -> int:
    """Close the night, make its page, and say how it went; returns the exit code."""
    if record.ended is None:
        record = replace(record, ended=datetime.now(UTC).isoformat(timespec="seconds"))
        record.write(folder)
    outputs = [f"--output={name}:{folder / file}" for name, file in PAGES.items()]
    page = [*REPORT, str(folder), "--history", str(history), *outputs]
    made = subprocess.run(page, stdin=subprocess.DEVNULL, check=False).returncode == 0
    if not made:
        print("harness: the night has no page; its results are there", file=sys.stderr)
    return record.exit_code if made else record.exit_code or 3


@contextmanager
def _telling() -> Iterator[Listener]:
    """A line for each stage that is over; on a terminal also how far the one under way is."""
    from rich.console import Console

    from harness.conduct.budget import told
    from harness.conduct.record import StageRecord
    from harness.conduct.turns import Listener

    console = Console(stderr=True)
    status = console.status("") if console.is_terminal else None

    class Telling(Listener):
        def runs(self, stage: StageRecord) -> None:
            if status is not None:
                of = "" if stage.share_s is None else f" of {told(stage.share_s)}"
                status.update(f"{stage.name}: {told(stage.seconds)}{of}, {len(stage.codes)} steps done")
                status.start()

        def ended(self, stage: StageRecord) -> None:
            if status is not None:
                status.stop()
            verdict = stage.verdict.upper() or "-"
            print(
                f"{stage.name:<7} {stage.status:<8} {verdict:<9} {told(stage.seconds):>7}  {stage.reason}", flush=True
            )

    try:
        yield Telling()
    finally:
        if status is not None:
            status.stop()
