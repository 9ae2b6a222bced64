"""The command `harness odds`."""

from __future__ import annotations

import json as json_module
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.engine.odds import Odds

ENOUGH = 0.99
"""The chance at which a run has to catch a fault."""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "odds", epilog=f"Exit codes: 0 a run catches every fault at {ENOUGH:.0%} or more; 1 one is below; 2 usage."
    )(odds_command)


def odds_command(
    *,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="FAULT", help="This fault alone; may be repeated.")
    ] = None,
    cases: Annotated[int, typer.Option(min=1, help="Layouts a fault, at least.")] = 300,
    profile: Annotated[str, typer.Option(metavar="NAME", help="Whose run is told of.")] = "ci",
    seed: Annotated[int | None, typer.Option(min=0, help="Draw other cases than the profile's own.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; as many as processors by default.")] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the table as JSON.")] = None,
) -> None:
    """Measure how likely one layout, and so one run, is to catch each fault."""
    from harness.catalogue import find_fault
    from harness.corpus import load_corpus
    from harness.engine import find_profile
    from harness.engine.odds import odds
    from harness.engine.unit import Work
    from harness.faults.registry import load_faults

    names = only or [fault.name for fault in load_faults()]
    for name in names:
        find_fault(name)
    if output is not None and not output.parent.is_dir():
        raise UsageError(got=str(output), expected="a file in a folder that exists", where="--output")
    work = Work(subject="v4model", profile=find_profile(profile), corpus=load_corpus(None), seed=seed, fault=None)
    print(_HEADING, flush=True)
    found = odds(names, work, cases=cases, jobs=jobs or len(os.sched_getaffinity(0)), done=_print)
    weak = [each for each in found if each.a_run < ENOUGH]
    caught = f"{len(found) - len(weak)} of {len(found)} faults are caught by a {profile} run at {ENOUGH:.0%} or more"
    print(caught + (f"; below: {', '.join(each.fault for each in weak)}" if weak else ""))
    if output is not None:
        table = {"schema_version": 1, "profile": profile, "seed": seed, "odds": [each.to_json() for each in found]}
        output.write_text(json_module.dumps(table, indent=2) + "\n", encoding="utf-8")
    raise typer.Exit(1 if weak else 0)


_ROW = "{:<5} {:<31} {:>8} {:>8} {:>7} {:>8} {:>7}"
_HEADING = _ROW.format("fault", "caught by", "caught", "a layout", "(95% >)", "layouts", "a run >")


def _print(each: Odds) -> None:
    row = _ROW.format(
        each.fault,
        each.property_name,
        f"{each.caught}/{each.cases}",
        f"{each.a_layout:.3f}",
        f"{each.at_least:.3f}",
        each.layouts,
        # Rounded down: a chance is never told as certain.
        f"{min(int(each.a_run * 1e5), 99_999) / 1e5:.5f}",
    )
    print(row, flush=True)
    if each.trouble:
        print(f"      undecided: {each.trouble}", flush=True)
