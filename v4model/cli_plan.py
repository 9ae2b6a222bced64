"""The command `v4model plan`."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from v4model.cli_options import GB, ChangeOption, ConfigOption, DtypeOption, EngineOption, chosen_config, gigabytes

if TYPE_CHECKING:
    from rich.console import Console

    from v4model.train.planner import Layout, Plan

SCHEMA = 1


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("plan", epilog="Exit codes: 0 a layout fits; 1 none does; 2 usage.")(plan_command)


def plan_command(
    *,
    preset: Annotated[str, typer.Option("--model", metavar="NAME", help="tiny, three_kinds, flash or pro.")] = "flash",
    config: ConfigOption = None,
    change: ChangeOption = None,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of the cluster.")] = 1,
    gpus: Annotated[int, typer.Option(min=1, help="Cards a node.")] = 8,
    memory: Annotated[float, typer.Option(help="GB of a card.")] = 141.0,
    host_memory: Annotated[float, typer.Option(help="GB of a node's host, for offloaded optimizers.")] = 2000.0,
    window: Annotated[int, typer.Option(min=2, help="Tokens of a pack.")] = 4096,
    longest: Annotated[
        int | None, typer.Option(min=1, help="Tokens of the longest sample; the window by default.", show_default=False)
    ] = None,
    micro_batches: Annotated[
        int | None,
        typer.Option(min=1, help="Packs of a step a replica; by default one for each stage.", show_default=False),
    ] = None,
    dtype: DtypeOption = "bfloat16",
    engine: EngineOption = "megatron",
    ops: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="fast or plain operations; fast wherever they run on a card.", show_default=False
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Layouts that are listed.")] = 8,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Say which ways to spread a model over a cluster fit, with memory by part; with recomputation."""
    from v4model.train.memory import logits_of
    from v4model.train.planner import Cluster, plan
    from v4model.train.work import Work, ops_on_card

    model = chosen_config(preset, config, change)
    cluster = Cluster(nodes=nodes, gpus=gpus, memory=memory * GB, host_memory=host_memory * GB)
    found = plan(
        model, cluster, window=window, longest=longest, micro_batches=micro_batches, dtype=dtype, engine=engine, ops=ops
    )
    if json:
        content = {"schema": SCHEMA, **asdict(found)}
        print(json_module.dumps(content, indent=1))
    else:
        from rich.console import Console

        # Wide enough for every column where there is no terminal to fit.
        console = Console(width=None if Console().is_terminal else 200)
        _print_axes(console, found)
        _print_layouts(console, found, top=top)
        if found.layouts:
            tokens = -(-window // found.layouts[0].mesh.cp)
            work = Work(tokens=tokens, longest=window, dtype=dtype, ops=ops or ops_on_card(dtype))
            whole = logits_of(model, work=replace(work, chunked=False))
            console.print(
                f"Logits of the first: {gigabytes(logits_of(model, work=work))} GB in chunks of "
                f"{model.loss_chunk_tokens:,} tokens, {gigabytes(whole)} GB without."
            )
    if not found.layouts:
        raise typer.Exit(1)


def _print_axes(console: Console, found: Plan) -> None:
    from rich.table import Table

    table = Table("axis", "possible sizes", "because", box=None)
    for axis in found.axes:
        table.add_row(axis.name, " ".join(map(str, axis.sizes)), axis.why)
    console.print(table)


def _print_layouts(console: Console, found: Plan, *, top: int) -> None:
    from rich.table import Table

    from v4model.train.work import Parts

    parts = list(Parts.__dataclass_fields__)
    title = "Layouts that fit, best first; GB of the fullest card" if found.layouts else "Nothing fits; closest:"
    table = Table("pp", "cp", "ep", "dp", "optimizer on", *parts, "sum", "card", "host/node", "", title=title, box=None)
    for layout in found.layouts[:top] or (found.closest,):
        mesh = layout.mesh
        table.add_row(
            *map(str, (mesh.pp, mesh.cp, mesh.ep, mesh.dp)),
            "host" if layout.offload else "card",
            *(gigabytes(getattr(layout.peak, part)) for part in parts),
            gigabytes(layout.peak.total),
            f"{layout.share_of_card:.0%}",
            gigabytes(layout.host_bytes) if layout.offload else "-",
            _warning(layout),
        )
    console.print(table)


def _warning(layout: Layout) -> str:
    if not layout.fits:
        return "does not fit" if layout.share_of_card > 1 else "host too small"
    return "above 90%: another process taking 6 GB ends the run" if layout.is_tight else ""
