"""What this installation offers to a recipe, asked of the library itself: `python -m v4model.recipes.probe`."""

from __future__ import annotations

import importlib.util
import json as json_module
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from v4model.cli_options import chosen_config
from v4model.console import exit_with, run_app
from v4model.errors import ConfigError, V4Error

YES = "yes"

Answers = dict[str, dict[str, str]]
"""Kind of thing, then its name: `yes`, or the sentence why not."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def probe_command(
    *,
    preset: Annotated[str, typer.Option(metavar="NAME", help="Ask for this preset.")] = "tiny",
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Ask for this config.json instead.", show_default=False)
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="With this change; may be repeated.")
    ] = None,
    tokenizer: Annotated[str, typer.Option(metavar="NAME", help="Ask for v4, bytes, or a tokenizer.json.")] = "v4",
    gpus: Annotated[
        int | None, typer.Option(min=1, help="Ask for so many GPUs, and what they can do.", show_default=False)
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Print kind.name=answer lines for a shell, not JSON.")] = False,
) -> None:
    """Print what a recipe may use: `yes`, or why not."""
    answers = {
        "option": dict.fromkeys(train_options(), YES),
        "launcher": {"torchrun": launcher()},
        "model": {"config": _answer(lambda: chosen_config(preset, config, change))},
        "tokenizer": {tokenizer: tokenizer_answer(tokenizer)},
    }
    if gpus is not None:
        answers["gpu"] = gpu_answers(gpus)
    print(as_lines(answers) if lines else json_module.dumps(answers, indent=1, sort_keys=True))


def train_options() -> list[str]:
    """Options of `v4model train`, without their dashes, as the command itself declares them."""
    from v4model import cli

    train = typer.main.get_group(cli.app).commands["train"]
    return sorted(
        name.removeprefix("--")
        for parameter in train.params
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("--")
    )


def tokenizer_answer(spec: str) -> str:
    """Whether a tokenizer can be loaded, by loading it."""
    from v4model.data.tokenizer import load_tokenizer

    return _answer(lambda: load_tokenizer(spec))


def launcher() -> str:
    """Whether torchrun's module is there. torch is not imported for it, which would take seconds."""
    spec = importlib.util.find_spec("torch")
    folders = (spec.submodule_search_locations or []) if spec else []
    if any((Path(folder) / "distributed" / "run.py").is_file() for folder in folders):
        return YES
    return str(ConfigError(got="no module torch.distributed.run", expected="torch with its torchrun"))


def gpu_answers(gpus: int) -> dict[str, str]:
    """Whether torch sees so many GPUs, and has NCCL and bfloat16 on them."""
    import torch
    import torch.distributed as dist

    found = torch.cuda.device_count()
    return {
        "count": YES if found >= gpus else f"got {found} CUDA devices; expected {gpus}, one a process",
        "nccl": YES if dist.is_available() and dist.is_nccl_available() else "this torch was built without NCCL",
        "bfloat16": YES
        if found and torch.cuda.is_bf16_supported(including_emulation=False)
        else "no GPU here multiplies bfloat16 natively",
    }


def as_lines(answers: Answers) -> str:
    """`kind.name=answer`, a line each."""
    return "\n".join(
        f"{kind}.{name}={' '.join(answer.split())}"
        for kind, found in sorted(answers.items())
        for name, answer in sorted(found.items())
    )


def _answer(ask: Callable[[], object]) -> str:
    try:
        ask()
    except V4Error as error:
        return str(error)
    return YES


def main(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    return run_app(app, arguments, name="v4model.recipes.probe", refused=V4Error)


if __name__ == "__main__":
    exit_with(main)
