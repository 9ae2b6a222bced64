"""The command `v4model train`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from v4model.cli_options import (
    ChangeOption,
    ConfigOption,
    DtypeOption,
    EngineOption,
    PathArgument,
    PresetOption,
    RecomputeOption,
    TokenizerOption,
    chosen_config,
)
from v4model.console import INTERRUPTED, progress
from v4model.errors import ConfigError

if TYPE_CHECKING:
    from v4model.data import Recipe
    from v4model.parallel.groups import Mesh
    from v4model.train.engine import Engine
    from v4model.train.settings import TrainSettings


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "train",
        epilog="Exit codes: 0 all steps are done; 1 a sample sees another one, a loss is no number, or a card is full; "
        "2 usage; 130 interrupted and saved.",
    )(train_command)


def train_command(
    path: PathArgument = None,
    *,
    preset: PresetOption = "tiny",
    config: ConfigOption = None,
    change: ChangeOption = None,
    window: Annotated[int, typer.Option(min=2, help="Tokens of a pack.")] = 512,
    mode: Annotated[
        str, typer.Option(metavar="NAME", help="best-fit or sequential (THD), or padded (BSHD).")
    ] = "best-fit",
    tokenizer: TokenizerOption = "v4",
    cache: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep packs there and read them again.", show_default=False)
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps of the whole run.")] = 30,
    packs: Annotated[int, typer.Option(min=1, help="Packs a step, over all replicas.")] = 1,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 3e-3,
    warmup: Annotated[int, typer.Option(min=0, help="Steps until the learning rate is reached.")] = 0,
    decay: Annotated[
        int | None, typer.Option(help="Step at which a cosine has brought it to a tenth.", show_default=False)
    ] = None,
    weight_decay: Annotated[float, typer.Option(help="Of matrices.")] = 0.1,
    clip: Annotated[float, typer.Option(help="Largest norm of a gradient; 0 for any.")] = 1.0,
    dtype: DtypeOption = "float32",
    seed: Annotated[int, typer.Option(min=0, help="Of the weights, and of the order of packs.")] = 0,
    recompute: RecomputeOption = False,
    engine: EngineOption = "torch",
    offload: Annotated[float, typer.Option(help="Share of the optimizer that lives on the host (megatron).")] = 0.0,
    cp: Annotated[int, typer.Option(min=1, help="Context-parallel ranks.")] = 1,
    ep: Annotated[int, typer.Option(min=1, help="Ranks that the experts are spread over.")] = 1,
    pp: Annotated[int, typer.Option(min=1, help="Pipeline stages.")] = 1,
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu or cuda.")] = "cpu",
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the run: log.jsonl, curve.png, checkpoints.")
    ] = Path("reports/train"),
    save_every: Annotated[
        int | None, typer.Option(min=1, help="Steps between checkpoints; the last step is always saved.")
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Begin from these safetensors, not from a seed.", show_default=False),
    ] = None,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints/--no-checkpoints", help="Save what a run needs to go on.")
    ] = True,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest checkpoint, also at another learning rate.")
    ] = False,
    preflight: Annotated[
        bool, typer.Option("--preflight/--no-preflight", help="Prove isolation on the first pack before step 1.")
    ] = True,
) -> None:
    """Train on packs of whole samples; under torchrun, on as many ranks as it starts."""
    from v4model.data import Recipe
    from v4model.train.settings import TrainSettings

    settings = TrainSettings(
        config=chosen_config(preset, config, change),
        steps=steps,
        packs_per_step=packs,
        learning_rate=lr,
        warmup_steps=warmup,
        decay_steps=decay,
        weight_decay=weight_decay,
        clip_norm=clip or None,
        dtype=dtype,
        seed=seed,
        recompute=recompute,
        mesh=_mesh(cp=cp, ep=ep, pp=pp),
        engine=engine,
        offload=offload,
    )
    recipe = Recipe(
        window=window,
        mode=mode,  # type: ignore[arg-type]  # the recipe refuses names that it does not know
        ranks=cp,
        seed=seed,
        too_long="truncate",
        unsupervised="drop",
    )
    inputs = _Inputs(path, tokenizer, recipe, cache)
    with _world(settings, device=device) as own_device:
        done = _run(
            settings,
            inputs,
            device=own_device,
            output=output,
            weights=weights,
            checkpoints=output / "checkpoints" if checkpoints else None,
            save_every=save_every,
            resume=resume,
            preflight=preflight,
        )
    if done < steps:
        if os.environ.get("RANK", "0") == "0":
            print(f"v4model: interrupted after {done} of {steps} steps; `--resume` goes on", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)


@dataclass(frozen=True)
class _Inputs:
    """Where packs come from, as the command line said it."""

    path: Path | None
    tokenizer: str
    recipe: Recipe
    cache: Path | None

    def look_at(self, pack: int) -> str:
        """The command that shows a pack."""
        recipe = self.recipe
        place = f" {self.path}" if self.path is not None else ""
        return (
            f"`v4model data inspect{place} --window {recipe.window} --mode {recipe.mode} --ranks {recipe.ranks} "
            f"--seed {recipe.seed} --too-long {recipe.too_long} --unsupervised {recipe.unsupervised} "
            f"--tokenizer {self.tokenizer} --pack {pack}`"
        )


def _run(
    settings: TrainSettings,
    inputs: _Inputs,
    *,
    device: str,
    output: Path,
    weights: Path | None,
    checkpoints: Path | None,
    save_every: int | None,
    resume: bool,
    preflight: bool,
) -> int:
    import torch

    from v4model.data import load_packs, load_tokenizer, open_source
    from v4model.train.engines import engine_of
    from v4model.train.feed import Feed
    from v4model.train.isolation import IsolationError
    from v4model.train.loop import NotFiniteError, RunFiles, train

    source, tokenizer = open_source(inputs.path), load_tokenizer(inputs.tokenizer)
    data = load_packs(source, tokenizer=tokenizer, recipe=inputs.recipe, cache=inputs.cache)
    feed = Feed(data, settings.config, settings.packs_per_step, replicas=settings.mesh.dp)
    files = RunFiles(
        log=output / "log.jsonl",
        checkpoints=checkpoints,
        save_every=save_every,
        about={
            "config": repr(settings.config),
            "packs": inputs.recipe.key(source_digest=source.digest, tokenizer_digest=tokenizer.digest),
            "packs_per_step": settings.packs_per_step,
            "dtype": settings.dtype,
            "engine": settings.engine,
        },
    )
    engine = engine_of(settings, device=device)
    if weights is not None:
        engine.load_weights(weights)
    speaks = engine.member.rank == 0
    if speaks:
        print(_heading(engine, source=source.name, packs=len(data), ids=tokenizer.vocab_size))
    try:
        with progress("steps", total=settings.steps) if speaks else nullcontext(_nothing) as advance:
            done = train(
                engine,
                feed,
                files,
                preflight=preflight,
                resume=resume,
                pack_command=inputs.look_at,
                proven=_say_proven if speaks else None,
                done=lambda _: advance(),
            )
    except (IsolationError, NotFiniteError) as error:
        print(f"v4model: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
    except torch.OutOfMemoryError as error:
        print(
            f"v4model: got a step that does not fit on {device} ({str(error).split('. ')[0]}); expected less: "
            "--recompute, a smaller --window, more --cp, or --offload; where: `v4model plan` counts by part",
            file=sys.stderr,
        )
        raise typer.Exit(1) from error
    if speaks:
        _close(files.log, output / "curve.png", title=f"{source.name}, window {inputs.recipe.window:,}")
    return done


def _nothing() -> None:
    pass


def _say_proven(seconds: float) -> None:
    print(f"isolation holds on the first pack: no sample has a gradient at another's tokens ({seconds:.1f} s)")


def _mesh(*, cp: int, ep: int, pp: int) -> Mesh:
    """As many replicas as the ranks that torchrun started leave room for."""
    from v4model.parallel.groups import Mesh

    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world % (cp * pp):
        got = f"{world} rank{'' if world == 1 else 's'}"
        raise ConfigError(got=got, expected=f"a multiple of cp * pp = {cp * pp}", where="torchrun's world")
    return Mesh(cp=cp, ep=ep, pp=pp, dp=world // (cp * pp))


@contextmanager
def _world(settings: TrainSettings, *, device: str) -> Iterator[str]:
    """The process group of torchrun where there are several ranks, or Megatron wants one; gives this rank's device."""
    import torch
    import torch.distributed as dist

    if device not in ("cpu", "cuda"):
        expected = "cpu, or cuda: each rank takes the card of its own number"
        raise ConfigError(got=f"--device {device}", expected=expected, where="training")
    if device == "cuda":
        if not torch.cuda.is_available():
            raise ConfigError(got="no CUDA device", expected="one, or --device cpu", where="--device cuda")
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
    elif settings.engine == "megatron":
        raise ConfigError(got=f"--device {device}", expected="--device cuda", where="--engine megatron")
    if settings.engine == "torch" and settings.mesh.world == 1:
        yield device
        return
    backend = "gloo" if device == "cpu" else "nccl"
    if settings.mesh.world == 1:
        # Nobody to meet, so no address.
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    else:
        dist.init_process_group(backend)
    try:
        yield device
    finally:
        dist.destroy_process_group()


def _heading(engine: Engine, *, source: str, packs: int, ids: int) -> str:
    config, mesh = engine.settings.config, engine.mesh
    parameters = sum(parameter.numel() for parameter in engine.model.parameters())
    folded = f", ids folded into {config.vocab_size:,}" if config.vocab_size < ids else ""
    ranks = "" if mesh.world == 1 else f"; ranks: dp {mesh.dp}, pp {mesh.pp}, cp {mesh.cp}, ep {mesh.ep}"
    return (
        f"{source}: {packs:,} packs{folded}; {parameters:,} parameters on this rank, {engine.settings.dtype}, "
        f"engine {engine.settings.engine}{ranks}"
    )


def _close(log: Path, curve: Path, *, title: str) -> None:
    from v4model.train.curve import save_curve
    from v4model.train.record import read_records

    records = read_records(log)
    if not records:
        return
    save_curve(records, curve, title=title)
    first, last = records[0], records[-1]
    print(
        f"steps {first.step} to {last.step}: loss {first.loss:.4f} to {last.loss:.4f}; "
        f"{sum(record.without_hca for record in records)} of {sum(len(record.packs) for record in records)} packs "
        f"without a complete HCA window; {log}, {curve}"
    )
