"""The command `v4model compare-layouts`."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from v4model.cli_options import (
    ChangeOption,
    ConfigOption,
    DtypeOption,
    PathArgument,
    PresetOption,
    RecomputeOption,
    TokenizerOption,
    chosen_config,
)
from v4model.console import progress
from v4model.errors import ConfigError

if TYPE_CHECKING:
    from v4model.train.compare import Comparison

SCHEMA = 1


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compare-layouts", epilog="Exit codes: 0 measured; 2 usage.")(compare_command)


def compare_command(
    path: PathArgument = None,
    *,
    preset: PresetOption = "three_kinds",
    config: ConfigOption = None,
    change: ChangeOption = None,
    window: Annotated[int, typer.Option(min=2, help="Tokens of a pack, and of a padded row.")] = 4096,
    packs: Annotated[int, typer.Option(min=1, help="Packs, or padded rows, a step.")] = 1,
    pairs: Annotated[int, typer.Option(min=2, help="Pairs of steps that count.")] = 10,
    tokenizer: TokenizerOption = "v4",
    dtype: DtypeOption = "float32",
    recompute: RecomputeOption = False,
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu or cuda.")] = "cpu",
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Time training steps of packed (THD) and padded (BSHD) rows in turns: same corpus, same tokens a step."""
    import torch

    from v4model.data import Recipe, load_packs, load_tokenizer, open_source
    from v4model.train.compare import compare
    from v4model.train.engines import engine_of
    from v4model.train.feed import Feed
    from v4model.train.settings import TrainSettings

    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(got="no CUDA device", expected="one, or --device cpu", where="--device cuda")
    model = chosen_config(preset, config, change)
    source, loaded = open_source(path), load_tokenizer(tokenizer)
    # Small steps: what is asked is their time.
    settings = TrainSettings(
        config=model, steps=2 * pairs, packs_per_step=packs, learning_rate=1e-4, dtype=dtype, recompute=recompute
    )

    def feed(mode: str) -> Feed:
        recipe = Recipe(window=window, mode=mode, too_long="truncate", unsupervised="drop")  # type: ignore[arg-type]
        return Feed(load_packs(source, tokenizer=loaded, recipe=recipe, cache=None), model, packs)

    engine, warmup = engine_of(settings, device=device), 2
    with progress("pairs", total=pairs + warmup) as advance:
        found = compare(
            engine, packed=feed("best-fit"), padded=feed("padded"), pairs=pairs, warmup=warmup, done=advance
        )
    if json:
        content = {"schema": SCHEMA, **_summary(found), "pairs": [asdict(pair) for pair in found.pairs]}
        print(json_module.dumps(content, indent=1))
        return
    _print(found, heading=f"{source.name}: {pairs} pairs of steps of {packs} x {window:,} tokens, {dtype} on {device}")


def _summary(found: Comparison) -> dict[str, Any]:
    middle, least, largest = found.ratio
    rates = {
        f"{layout}_{tokens}_tokens_per_s": found.rate(layout, tokens)
        for layout in ("packed", "padded")
        for tokens in ("real", "supervised")
    }
    return {
        "step_time_ratio": {"median": middle, "least": least, "largest": largest},
        **rates,
        "real_factor": found.factor("real"),
        "supervised_factor": found.factor("supervised"),
    }


def _print(found: Comparison, *, heading: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("", "seconds a step", "real tokens/s", "supervised tokens/s", title=heading, box=None)
    for layout, name in (("packed", "packed (THD)"), ("padded", "padded (BSHD)")):
        seconds = [getattr(pair, f"{layout}_seconds") for pair in found.pairs]
        spread = f"{median(seconds):.3f} ({min(seconds):.3f} to {max(seconds):.3f})"
        table.add_row(name, spread, *(f"{found.rate(layout, tokens):,.0f}" for tokens in ("real", "supervised")))
    middle, least, largest = found.ratio
    table.add_row(
        "packed / padded",
        f"{middle:.3f} ({least:.3f} to {largest:.3f})",
        *(f"x {found.factor(tokens):.1f}" for tokens in ("real", "supervised")),
    )
    Console(width=None if Console().is_terminal else 160).print(table)
