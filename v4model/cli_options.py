"""What the commands of a model share: its options, the configuration they make, and figures for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from v4model.errors import ConfigError

if TYPE_CHECKING:
    from v4model.config import V4Config

PresetOption = Annotated[str, typer.Option(metavar="NAME", help="tiny, three_kinds, flash or pro.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A released config.json instead of a preset.", show_default=False),
]
ChangeOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Change a field of the configuration; may be repeated."),
]
DtypeOption = Annotated[str, typer.Option(metavar="NAME", help="float64, float32 or bfloat16.")]
EngineOption = Annotated[
    str, typer.Option(metavar="NAME", help="torch, or megatron: its optimizer and schedules, on CUDA.")
]
PathArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="PATH",
        help="Alpaca .json, chat .jsonl or a Hugging Face datasets folder; built-in text by default.",
        show_default=False,
    ),
]
TokenizerOption = Annotated[str, typer.Option(metavar="NAME", help="v4, bytes, or a path to any tokenizer.json.")]
RecomputeOption = Annotated[
    bool, typer.Option("--recompute", help="Compute each block again in the backward pass: less memory, more time.")
]

GB = 1e9


def chosen_config(preset: str, config: Path | None, change: list[str] | None) -> V4Config:
    """The configuration of a command line. Raises ConfigError."""
    from v4model import presets
    from v4model.changes import with_changes
    from v4model.config import V4Config

    changes = {}
    for text in change or []:
        name, sign, value = text.partition("=")
        if not sign:
            raise ConfigError(got=text, expected="FIELD=VALUE", where="--set")
        changes[name] = value
    model = presets.named(preset) if config is None else V4Config.from_hf(config)
    return with_changes(model, changes, where="--set")


def sizes(text: str, *, option: str) -> list[int]:
    """Numbers of tokens between commas, each once. Raises ConfigError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise ConfigError(got=text, expected="numbers of tokens, such as 4096,131072", where=option)
    return list(dict.fromkeys(map(int, parts)))


def gigabytes(nbytes: float | None) -> str:
    """1 GB is 10^9 bytes."""
    return "-" if nbytes is None else f"{nbytes / GB:.1f}"
