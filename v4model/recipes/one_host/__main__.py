"""`python -m v4model.recipes.one_host --gpus 8`: every stage, then one table and one picture."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from v4model.console import exit_with, run_app
from v4model.errors import ConfigError, V4Error

if TYPE_CHECKING:
    from v4model.recipes.one_host.stages import Host

H200_BYTES = 143_771 * 2**20

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(epilog="Exit codes: 0 all went well; 1 a stage failed, or is outside a bound; 2 usage.")
def one_host_command(
    *,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs to use; processes, with --rehearsal.")],
    data: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Alpaca .json or chat .jsonl; built-in text by default.", show_default=False),
    ] = None,
    output: Annotated[Path, typer.Option(metavar="DIR", help="A folder for all of it.")] = Path("reports/one-host"),
    only: Annotated[
        list[str] | None, typer.Option(metavar="STAGE", help="This stage alone; may be repeated.", show_default=False)
    ] = None,
    rehearsal: Annotated[
        bool, typer.Option("--rehearsal", help="The same on CPU processes over gloo, tiny: does all of it work?")
    ] = False,
    summary: Annotated[
        bool, typer.Option("--summary", help="Run nothing: table and picture of what the folder holds.")
    ] = False,
    minutes: Annotated[float, typer.Option(min=0.1, help="The longest that a stage may take.")] = 60.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands; run nothing.")] = False,
) -> None:
    """Compare ranks, check properties, train at 1 to all GPUs, and write table.md and scaling.png."""
    from v4model.recipes.one_host.read import longest_sample
    from v4model.recipes.one_host.run import run_stage
    from v4model.recipes.one_host.stages import on_gpus, stages
    from v4model.recipes.one_host.stages import rehearsal as on_processes

    sizes = on_processes() if rehearsal else on_gpus()
    where = None if data is None else str(data)
    host = _host(gpus, is_used=not (rehearsal or dry_run or summary))
    longest = longest_sample(where, window=sizes.long_window)
    planned = list(stages(host, output, sizes=sizes, data=where, longest=longest))
    names = [stage.name for stage in planned]
    unknown = sorted(set(only or []) - set(names))
    if unknown:
        raise ConfigError(got=f"stage {', '.join(unknown)}", expected=f"some of {', '.join(names)}", where="--only")
    chosen = [stage for stage in planned if not only or stage.name in only]
    if dry_run:
        for stage in chosen:
            print(f"{stage.name}: {' '.join(stage.command)}")
        return
    for stage in [] if summary else chosen:
        print(f"{stage.name} ...", flush=True)
        ended = run_stage(stage, output, timeout_s=60 * minutes)
        print(f"{stage.name}: ended with {ended.code} after {ended.seconds:.0f} s", flush=True)
    raise typer.Exit(_summarise(names, output, about=_machine(gpus, is_rehearsal=rehearsal)))


def _summarise(names: list[str], output: Path, *, about: str) -> int:
    from v4model.recipes.one_host.picture import save_picture
    from v4model.recipes.one_host.read import read_run
    from v4model.recipes.one_host.run import read_stages
    from v4model.recipes.one_host.table import PICTURE, page

    ended = read_stages(output, names)
    if not ended:
        raise ConfigError(got="no stage that ran", expected=f"one of {', '.join(names)}", where=str(output))
    runs = [read_run(each, output) for each in ended if each.stage.training is not None]
    text, wrong = page(about=about, ended=ended, runs=runs, folder=output)
    (output / "table.md").write_text(text, encoding="utf-8")
    save_picture(runs, output / PICTURE, title=about)
    for problem in wrong:
        print(f"v4model.recipes.one_host: {problem}", file=sys.stderr)
    print(f"{output / 'table.md'}, {output / PICTURE}")
    return 1 if wrong else 0


def _host(gpus: int, *, is_used: bool) -> Host:
    """This machine; its cards are taken for H200 where none is seen and none is used."""
    import torch

    from v4model.recipes.one_host.stages import Host

    found = torch.cuda.device_count()
    if is_used and found < gpus:
        raise ConfigError(got=f"{found} GPUs", expected=f"{gpus}, or --rehearsal", where="this machine")
    memory = torch.cuda.get_device_properties(0).total_memory if found else H200_BYTES
    on_host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Host(gpus=gpus, memory=float(memory), host_memory=float(on_host))


def _machine(gpus: int, *, is_rehearsal: bool) -> str:
    import torch

    card = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} cores, no GPU"
    one, more = ("process", "es") if is_rehearsal else ("GPU", "s")
    what = f"{gpus} {one}{'' if gpus == 1 else more}{' over gloo' if is_rehearsal else ''}"
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    return f"{what} of one host: {card}, {versions}, {datetime.now(UTC):%Y-%m-%d}"


def main(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    return run_app(app, arguments, name="v4model.recipes.one_host", refused=V4Error)


if __name__ == "__main__":
    exit_with(main)
