"""The command `v4model bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from v4model.cli_options import (
    ChangeOption,
    ConfigOption,
    DtypeOption,
    PresetOption,
    RecomputeOption,
    chosen_config,
    gigabytes,
    sizes,
)
from v4model.console import progress

if TYPE_CHECKING:
    from v4model.bench.steps import Report


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bench", epilog="Exit codes: 0 measured; 1 a window does not fit; 2 usage.")(bench_command)


def bench_command(
    *,
    preset: PresetOption = "three_kinds",
    config: ConfigOption = None,
    change: ChangeOption = None,
    windows: Annotated[str, typer.Option(metavar="SIZES", help="Tokens of a pack.")] = "4096,8192",
    packs: Annotated[
        str, typer.Option(metavar="NAMES", help="single (one sample), natural (lengths of instruction data).")
    ] = "single,natural",
    twins: Annotated[
        str, typer.Option(metavar="NAMES", help="fast (where they run), plain (the model's operations), transformers.")
    ] = "fast,plain",
    repeats: Annotated[int, typer.Option(min=1, help="Of each forward and backward pass, after one more.")] = 3,
    recompute: RecomputeOption = False,
    whole_blocks: Annotated[
        bool, typer.Option("--whole-blocks", help="With --recompute: a block again as a whole, not part by part too.")
    ] = False,
    dtype: DtypeOption = "bfloat16",
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda, or auto: cuda where there is one.")] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Of weights, tokens and lengths.")] = 0,
    output: Annotated[Path, typer.Option(metavar="FILE", help="What was measured, as JSON.")] = Path(
        "reports/bench.json"
    ),
) -> None:
    """Time forward and backward passes: median, spread, operations a second, share of the ceiling, peak memory."""
    import torch

    from v4model.bench.steps import Plan, bench, save_report
    from v4model.errors import ConfigError
    from v4model.train.settings import DTYPES

    if dtype not in DTYPES:
        raise ConfigError(got=f"dtype {dtype!r}", expected=f"one of {', '.join(DTYPES)}", where="--dtype")
    plan = Plan(
        config=chosen_config(preset, config, change),
        windows=tuple(sizes(windows, option="--windows")),
        packs=_names(packs),
        twins=_names(twins),
        dtype=DTYPES[dtype],
        device=torch.device(_device(device)),
        repeats=repeats,
        recompute=recompute,
        recompute_within=not whole_blocks,
        seed=seed,
    )
    with progress("rows", total=len(plan.windows) * len(plan.packs) * len(plan.twins)) as advance:
        report = bench(plan, done=lambda _: advance())
    save_report(
        report, output, about={"config": repr(plan.config), "recompute": recompute, "whole_blocks": whole_blocks}
    )
    _print(report)
    if any(row.times is None for row in report.rows):
        raise typer.Exit(1)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _device(name: str) -> str:
    import torch

    from v4model.errors import ConfigError

    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(got=name, expected="cpu, cuda or auto", where="--device")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(got="no CUDA device", expected="one, or cpu", where="--device")
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


def _print(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if Console().is_terminal else 160)
    title = (
        f"{report.device}, {report.dtype}, torch {report.torch}; a matrix product {report.ceiling / 1e12:.3g} TFLOP/s"
    )
    columns = "window pack samples twin ms spread TFLOP/s share us/token GB".split()
    table = Table(*columns, title=title, box=None)
    for row in report.rows:
        times = row.times
        table.add_row(
            f"{row.window:,}",
            row.pack,
            f"{row.samples:,}",
            "fast (plain here)" if row.twin == "fast" and not row.fast else row.twin,
            *(
                ("-",) * 5
                if times is None
                else (
                    f"{times.median_ms:.1f}",
                    f"{times.spread:.1%}",
                    f"{row.tera_per_second:.3g}",
                    f"{row.share:.1%}",
                    f"{times.median_ms * 1e3 / row.window:.2f}",
                )
            ),
            gigabytes(row.peak_bytes),
        )
    console.print(table)
