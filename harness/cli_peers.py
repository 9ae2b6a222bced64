"""The command `harness peers`."""

from __future__ import annotations

import json as json_module
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.atomic import write_json
from harness.errors import UsageError
from v4model.console import progress

if TYPE_CHECKING:
    from harness.peers.result import PeerTable

DEFAULT_FOLDER = Path("reports/peers")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "peers",
        epilog="Exit codes: 0 every peer that is installed was asked and gave what its baseline says; 1 one gave "
        "something else than its own version's baseline; 2 usage; 3 none could be asked.",
    )(peers_command)


def peers_command(
    *,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="PEER", help="This peer alone; may be repeated.")
    ] = None,
    prop: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME", help="This property alone; may be repeated.")
    ] = None,
    profile: Annotated[str, typer.Option(metavar="NAME", help="peers, quick, ci or nightly.")] = "peers",
    seed: Annotated[int | None, typer.Option(min=0, help="Draw other cases than the profile's own.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; as many as processors by default.")] = None,
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of peers.json and of each peer's run.")
    ] = DEFAULT_FOLDER,
    environments: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where environments of peers are; .peers by default.")
    ] = None,
    make: Annotated[
        str | None, typer.Option(metavar="ENVIRONMENT", help="Make this environment anew instead of asking anything.")
    ] = None,
    pip_flags: Annotated[str, typer.Option(metavar="FLAGS", help="With --make: more arguments for pip.")] = "",
    record: Annotated[
        str | None, typer.Option(metavar="REASON", help="Make what each gave the baseline of its version.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Put public models to the properties: one table of peers and properties, with versions and smallest witnesses."""
    from harness.conduct.peers import ask
    from harness.peers.environment import FOLDER
    from harness.peers.environment import make as make_environment
    from harness.peers.known import PROPERTIES, find_peers
    from harness.peers.text import lines
    from harness.peers.verdicts import FOLDER as BASELINES

    where = environments or FOLDER
    if make is not None:
        made = make_environment(make, folder=where, pip_flags=shlex.split(pip_flags))
        print(f"{made.folder / made.name} is made; harness peers asks what runs in it")
        return
    if record is not None and not record.strip():
        raise UsageError(got="an empty --record", expected="why it may be like this", where="peers")
    peers = find_peers(only)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(got=f"{error.strerror}", expected="a folder to write to", where=str(output)) from error
    with progress("peers", total=len(peers)) as advance:
        table = ask(
            peers,
            folder=output,
            environments=where,
            baselines=BASELINES,
            properties=prop or PROPERTIES,
            profile=profile,
            jobs=jobs or len(os.sched_getaffinity(0)),
            seed=seed,
            done=lambda _: advance(),
        )
    write_json(output / "peers.json", table.to_json())
    print(json_module.dumps(table.to_json(), indent=2) if json else "\n".join(lines(table)))
    if record is not None:
        _bless(table, output, BASELINES, reason=record.strip())
    raise typer.Exit(_code(table))


def _bless(table: PeerTable, output: Path, baselines: Path, *, reason: str) -> None:
    from harness.peers.verdicts import bless

    for row in table.rows:
        if not row.missing and bless(row, run=output / row.name / "junit.xml", baselines=baselines, reason=reason):
            print(f"Recorded in {baselines / f'{row.name}-{row.version}'}.")


def _code(table: PeerTable) -> int:
    asked = [row for row in table.rows if not row.missing]
    if not asked:
        return 3
    return int(any(row.changes and row.baseline == row.version for row in asked))
