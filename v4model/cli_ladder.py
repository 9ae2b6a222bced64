"""The command `v4model ladder`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from v4model.cli_options import (
    ChangeOption,
    ConfigOption,
    DtypeOption,
    PathArgument,
    PresetOption,
    TokenizerOption,
    chosen_config,
    gigabytes,
    sizes,
)
from v4model.console import progress

if TYPE_CHECKING:
    from v4model.train.ladder import Rung


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ladder", epilog="Exit codes: 0 measured; 1 a window does not fit; 2 usage, or no CUDA device.")(
        ladder_command
    )


def ladder_command(
    path: PathArgument = None,
    *,
    preset: PresetOption = "three_kinds",
    config: ConfigOption = None,
    change: ChangeOption = None,
    windows: Annotated[
        str, typer.Option(metavar="SIZES", help="Tokens of a pack, a rung each.")
    ] = "4096,8192,16384,32768,65536,131072",
    tokenizer: TokenizerOption = "v4",
    dtype: DtypeOption = "bfloat16",
    seed: Annotated[int, typer.Option(min=0, help="Of the weights, and of the order of packs.")] = 0,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Folder for ladder.json and ladder.png.")] = Path(
        "reports/ladder"
    ),
) -> None:
    """Measure the peak of a training step window by window, in fresh processes, beside the planner's prediction."""
    from v4model.train.ladder import Task, climb, save_rungs
    from v4model.train.rungs import save_picture
    from v4model.train.settings import TrainSettings

    # Two steps are taken; small ones, so that no loss runs away.
    settings = TrainSettings(
        config=chosen_config(preset, config, change),
        steps=2,
        learning_rate=1e-4,
        dtype=dtype,
        seed=seed,
        recompute=True,
    )
    tasks = [
        Task(settings=settings, window=size, path=path, tokenizer=tokenizer)
        for size in sizes(windows, option="--windows")
    ]
    with progress("windows", total=len(tasks)) as advance:
        rungs = climb(tasks, done=lambda _: advance())
    save_rungs(rungs, output / "ladder.json", about={"config": repr(settings.config), "dtype": dtype})
    save_picture(rungs, output / "ladder.png")
    _print(rungs)
    if any(rung.measured is None for rung in rungs):
        raise typer.Exit(1)


def _print(rungs: list[Rung]) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = "window longest seconds measured reserved used planned error fitted error left-out error".split()
    console = Console(width=None if Console().is_terminal else 160)
    table = Table(*columns, title="Peak of a step, GB; left-out: by a fit of the other rungs", box=None)
    for rung in rungs:
        predicted = (rung.parts.total, rung.fitted, rung.left_out)
        table.add_row(
            f"{rung.window:,}",
            f"{rung.longest:,}",
            "-" if rung.seconds is None else f"{rung.seconds:.2f}",
            *map(gigabytes, (rung.measured, rung.reserved, rung.used)),
            *(text for value in predicted for text in (gigabytes(value), _share(rung.error(value)))),
        )
    console.print(table)


def _share(error: float | None) -> str:
    return "-" if error is None else f"{error:+.1%}"
