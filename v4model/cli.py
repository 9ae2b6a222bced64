"""The `v4model` command. Heavy imports happen inside the commands: `--help` must not wait for them."""

from __future__ import annotations

import json as json_module
import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from v4model import cli_bench, cli_compare, cli_ladder, cli_plan, cli_train
from v4model.cli_options import PathArgument, TokenizerOption
from v4model.console import exit_with, run_app
from v4model.errors import DataError, V4Error

if TYPE_CHECKING:
    from v4model.data import ChatTokenizer, PackedData, Recipe, Source

SCHEMA = 1
"""Version of what `--json` prints."""

app = typer.Typer(
    name="v4model",
    help="The packed DeepSeek-V4 model: its training data, its training, and what that needs.",
    epilog="Exit codes: 0 done; 2 the input or the usage is wrong.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="From instruction data to packs.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(data_app, name="data")
for command in (cli_train, cli_plan, cli_ladder, cli_bench, cli_compare):
    command.add_to(app)

ModeOption = Annotated[str, typer.Option(metavar="NAME", help="best-fit, sequential or padded (BSHD).")]
AlignOption = Annotated[int, typer.Option(help="Make every sample's slot a multiple of so many tokens.")]
RanksOption = Annotated[int, typer.Option(help="Context-parallel ranks; rows are padded to a multiple of them.")]
SeedOption = Annotated[int, typer.Option(help="Which of equally long samples stand together.")]
TooLongOption = Annotated[
    str, typer.Option(metavar="POLICY", help="A sample longer than the window: error, truncate or split.")
]
UnsupervisedOption = Annotated[
    str, typer.Option(metavar="POLICY", help="A sample in which nothing is learned: error or drop.")
]
CacheOption = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Keep packs there and read them again.", show_default=False)
]


@data_app.command("stats")
def stats_command(
    path: PathArgument = None,
    *,
    window: Annotated[str, typer.Option(metavar="SIZES", help="Tokens of a pack, such as 4096,131072.")] = "4096",
    mode: ModeOption = "best-fit",
    align: AlignOption = 1,
    ranks: RanksOption = 1,
    seed: SeedOption = 0,
    too_long: TooLongOption = "error",
    unsupervised: UnsupervisedOption = "error",
    tokenizer: TokenizerOption = "v4",
    preset: Annotated[str, typer.Option(metavar="NAME", help="Compression ratios of this preset.")] = "flash",
    cache: CacheOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw a picture too (.png, .svg).", show_default=False)
    ] = None,
) -> None:
    """Count packs, shares, waste and windows, and compare padded with packed."""
    from v4model import presets
    from v4model.data import load_tokenizer, open_source
    from v4model.data.stats import stats_of

    _say_warnings()
    ratios, sizes = presets.named(preset).ratios, _sizes(window)
    recipes = [
        _recipe(
            window=size,
            mode=mode,
            align=align,
            ranks=ranks,
            seed=seed,
            too_long=too_long,
            unsupervised=unsupervised,
        )
        for size in sizes
    ]
    source, loaded = open_source(path), load_tokenizer(tokenizer)
    packed = [_packs(source, tokenizer=loaded, recipe=recipe, cache=cache) for recipe in recipes]
    stats = [stats_of(data, ratios=ratios) for data in packed]
    heading = f"{source.name}: {_counts(packed[0])}; tokenizer of {loaded.vocab_size:,} ids"
    if loaded.added_markers:
        heading += f", {loaded.added_markers} of them chat markers that its file lacks"
    if picture is not None:
        from v4model.data.picture import save_picture

        save_picture(stats, picture, title=heading)
    if json:
        content = {
            "schema": SCHEMA,
            "source": {"name": source.name, "sha256": source.digest},
            "tokenizer": {"ids": loaded.vocab_size, "sha256": loaded.digest},
            "recipes": [asdict(recipe) for recipe in recipes],
            "stats": [asdict(one) for one in stats],
        }
        print(json_module.dumps(content, indent=1))
        return
    from rich.console import Console

    from v4model.data.tables import print_stats

    print_stats(Console(), stats, heading=heading)


@data_app.command("inspect")
def inspect_command(
    path: PathArgument = None,
    *,
    window: Annotated[int, typer.Option(help="Tokens of a pack.")] = 4096,
    pack: Annotated[int, typer.Option(help="Which pack, from 0.")] = 0,
    tokens: Annotated[
        str | None,
        typer.Option(metavar="A:B", help="All tokens from A up to B, not the ends of each sample.", show_default=False),
    ] = None,
    mode: ModeOption = "best-fit",
    align: AlignOption = 1,
    ranks: RanksOption = 1,
    seed: SeedOption = 0,
    too_long: TooLongOption = "error",
    unsupervised: UnsupervisedOption = "error",
    tokenizer: TokenizerOption = "v4",
    cache: CacheOption = None,
) -> None:
    """Show a pack: tokens, boundaries, masks and labels side by side."""
    from v4model.data import load_tokenizer, open_source
    from v4model.data.inspect import view_pack

    _say_warnings()
    recipe = _recipe(
        window=window,
        mode=mode,
        align=align,
        ranks=ranks,
        seed=seed,
        too_long=too_long,
        unsupervised=unsupervised,
    )
    wanted = None if tokens is None else _range(tokens)
    loaded = load_tokenizer(tokenizer)
    data = _packs(open_source(path), tokenizer=loaded, recipe=recipe, cache=cache)
    view = view_pack(data, pack, tokenizer=loaded, tokens=wanted)
    from rich.console import Console

    from v4model.data.tables import print_pack

    print_pack(Console(), view)


def main() -> None:
    """Entry point of the console script: runs a command and exits with its code."""
    exit_with(run_cli)


def run_cli(arguments: list[str]) -> int:
    """Run one command line and return its exit code; bad input is one sentence on stderr and 2."""
    return run_app(app, arguments, name="v4model", refused=V4Error)


def _recipe(*, window: int, mode: str, align: int, ranks: int, seed: int, too_long: str, unsupervised: str) -> Recipe:
    from v4model.data import Recipe

    # The recipe itself refuses names that it does not know.
    return Recipe(
        window=window,
        mode=mode,  # type: ignore[arg-type]
        align=align,
        ranks=ranks,
        seed=seed,
        too_long=too_long,  # type: ignore[arg-type]
        unsupervised=unsupervised,  # type: ignore[arg-type]
    )


def _packs(source: Source, *, tokenizer: ChatTokenizer, recipe: Recipe, cache: Path | None) -> PackedData:
    from v4model.data import load_packs

    return load_packs(source, tokenizer=tokenizer, recipe=recipe, cache=cache)


def _counts(data: PackedData) -> str:
    lengths = sorted(data.table.lengths.tolist())
    return (
        f"{len(lengths):,} samples of {lengths[0]:,} to {lengths[-1]:,} tokens, median {lengths[len(lengths) // 2]:,}"
    )


def _sizes(text: str) -> list[int]:
    sizes = text.split(",")
    if not all(size.strip().isdecimal() for size in sizes):
        raise DataError(got=text, expected="numbers of tokens, such as 4096,131072", where="--window")
    return list(dict.fromkeys(map(int, sizes)))


def _range(text: str) -> tuple[int, int]:
    start, _, end = text.partition(":")
    if not (start.isdecimal() and end.isdecimal()):
        raise DataError(got=text, expected="two numbers, such as 100:164", where="--tokens")
    return int(start), int(end)


def _say_warnings() -> None:
    """Warnings of the data stage (a cache built again, samples dropped) go to stderr, a line each."""
    logging.basicConfig(format="v4model: %(message)s", level=logging.WARNING)
