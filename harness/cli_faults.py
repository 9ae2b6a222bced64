"""The command `harness faults`."""

from __future__ import annotations

import json as json_module
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.atomic import write_json
from harness.errors import UsageError
from v4model.console import progress

if TYPE_CHECKING:
    from harness.matrix.result import Matrix


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "faults",
        epilog="Exit codes: 0 every fault is caught and nothing else raises an alarm; 1 not so; 2 usage; "
        "3 what should be quiet could not be decided.",
    )(faults_command)


def faults_command(
    *,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="This fault or rewrite, or `healthy`; may be repeated."),
    ] = None,
    subject: Annotated[
        str, typer.Option(metavar="NAME", help="A subject that is built on V4Model; --subject of `harness run`.")
    ] = "v4model",
    profile: Annotated[str, typer.Option(metavar="NAME", help="Whose cases it has to be caught in.")] = "ci",
    seed: Annotated[int | None, typer.Option(min=0, help="Draw other cases than the profile's own.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; as many as processors by default.")] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the matrix as JSON.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the matrix as JSON instead of a table.")] = False,
) -> None:
    """Plant every fault of the zoo and show which property catches it; rewrites and the healthy model stay quiet.

    `harness report FILE` makes a page of what --output wrote.
    """
    from harness.catalogue import find_subject
    from harness.corpus import load_corpus
    from harness.engine import check_plantable, find_profile
    from harness.engine.unit import Work
    from harness.faults.registry import load_faults
    from harness.matrix.run import Asking, items

    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise UsageError(got=str(output), expected="a file in a folder that exists", where="--output")
    check_plantable(load_faults()[0], find_subject(subject), name=f"subject {subject}")
    work = Work(subject=subject, profile=find_profile(profile), corpus=load_corpus(None), seed=seed, fault=None)
    asking = Asking(work, items(only or ()), whole=not only)
    try:
        with progress("faults and rewrites", total=len(asking.items)) as advance:
            asking.run(jobs=jobs or len(os.sched_getaffinity(0)), done=advance)
    except KeyboardInterrupt:
        _tell(asking.matrix(), output, json=json)
        print(f"harness: interrupted after {len(asking.rows)} of {len(asking.items)} rows", file=sys.stderr)
        raise
    matrix = asking.matrix()
    _tell(matrix, output, json=json)
    raise typer.Exit(matrix.exit_code)


def _tell(matrix: Matrix, output: Path | None, *, json: bool) -> None:
    """Print the matrix, then write it: nothing is lost to a file that cannot be written."""
    from harness.matrix.text import lines

    print(json_module.dumps(matrix.to_json(), indent=2) if json else "\n".join(lines(matrix)))
    if output is None:
        return
    try:
        write_json(output, matrix.to_json())
    except OSError as error:
        raise UsageError(got=f"{error.strerror}", expected="a file to write", where=str(output)) from error
