"""The `harness` command. Heavy imports happen inside the commands: `--help` must not wait for torch."""

from __future__ import annotations

import json as json_module
import os
import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness import cli_baseline, cli_faults, cli_nightly, cli_odds, cli_peers, cli_report, cli_subject
from harness.errors import CaseError, HarnessError, UsageError
from v4model.console import exit_with, progress, run_app

if TYPE_CHECKING:
    from harness.case import Case
    from harness.engine import Plan
    from harness.faults.registry import Fault
    from harness.properties import Property
    from harness.report import Report, UnitResult
    from harness.subjects.protocol import SubjectFactory
    from harness.verdict import Verdict

app = typer.Typer(
    name="harness",
    help="Checks that a packed-sequence model computes every sample as if it were alone.",
    epilog="Exit codes: 0 every property holds; 1 one is violated; 2 usage; 3 one could not be decided.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # typer's rich help takes longer to import than to read
)
cli_baseline.add_to(app)
cli_faults.add_to(app)
cli_nightly.add_to(app)
cli_odds.add_to(app)
cli_peers.add_to(app)
cli_report.add_to(app)
cli_subject.add_to(app)

SubjectOption = Annotated[
    str,
    typer.Option(
        "--subject",
        metavar="NAME",
        help="A subject: a name of `harness list`, module:factory, worker:PYTHON:MODULE:FACTORY, or a worker's .toml.",
    ),
]
OnlyOption = Annotated[
    list[str] | None, typer.Option("--only", metavar="PROPERTY", help="This property alone; may be repeated.")
]
DataOption = Annotated[
    Path | None, typer.Option("--data", metavar="FILE", help="Text from Alpaca .json or chat .jsonl, not the built-in.")
]
FaultOption = Annotated[
    str | None,
    typer.Option("--fault", metavar="NAME", help="Plant this fault of the zoo into the subject, on its ranks if any."),
]


@app.command("run")
def run_command(
    *,
    subject: SubjectOption = "v4model",
    profile: Annotated[str, typer.Option(metavar="NAME", help="quick, ci or nightly.")] = "quick",
    seed: Annotated[int | None, typer.Option(min=0, help="Draw other cases than the profile's own.")] = None,
    only: OnlyOption = None,
    cp: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES", help="Check ranks instead: context-parallel sizes, such as 1,2,4, in process and on gloo."
        ),
    ] = None,
    data: DataOption = None,
    fault: FaultOption = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; as many as processors by default.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of this run's files; reports/<time>-<profile> by default."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON instead of a table.")] = False,
) -> None:
    """Check properties on drawn packs of real text and print a table of verdicts."""
    plan = _plan(subject=subject, profile=profile, seed=seed, only=only, data=data, fault=fault, cp=_sizes(cp))
    folder = _folder(output, profile)
    report = _run_with_progress(plan, folder=folder, jobs=jobs or len(os.sched_getaffinity(0)))
    if json:
        print((folder / "report.json").read_text(encoding="utf-8"), end="")
    else:
        from rich.console import Console

        from harness.report.table import print_report

        print_report(Console(), report)
    raise typer.Exit(report.exit_code)


@app.command("replay")
def replay_command(
    token_or_file: Annotated[str, typer.Argument(metavar="TOKEN_OR_FILE", help="A replay token, or a case's file.")],
    *,
    only: OnlyOption = None,
    subject: SubjectOption = "v4model",
    fault: FaultOption = None,
    data: DataOption = None,
) -> None:
    """Check one case again, from its token alone."""
    from harness.corpus import load_corpus
    from harness.engine import decide

    case, properties, factory, planted = _asked(token_or_file, only=only, subject=subject, fault=fault)
    corpus = load_corpus(data)
    _one_thread()
    print(f"{case.token()} on {subject}, text {corpus.name} ({corpus.digest})")
    verdicts = []
    for prop in properties:
        verdict = decide(prop, factory, case, corpus, fault=planted)
        verdicts.append(verdict)
        print(f"{verdict.outcome.value:<9} {prop.name}{_detail(verdict)}")
        if verdict.witness is not None:
            print(f"  {verdict.witness.sentence()}")
    raise typer.Exit(_replay_code(verdicts))


@app.command("explain")
def explain_command(
    token_or_file: Annotated[str, typer.Argument(metavar="TOKEN_OR_FILE", help="A replay token, or a case's file.")],
    *,
    only: OnlyOption = None,
    subject: SubjectOption = "v4model",
    fault: FaultOption = None,
    data: DataOption = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The picture, .svg or .png; reports/explain-<case>.svg by default."),
    ] = None,
    test: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the case as a regression test, a new test_*.py.")
    ] = None,
    issue: Annotated[
        bool, typer.Option("--issue", help="Print a text for that project's tracker instead; nothing is sent.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the explanation as JSON.")] = False,
) -> None:
    """Check one case again and show what goes wrong where: layer by layer, and as a picture."""
    from harness.corpus import load_corpus
    from harness.explain import check_format, check_new, draw, explain, issue_of, lines, picture_of, to_json, write_test

    case, properties, factory, planted = _asked(token_or_file, only=only, subject=subject, fault=fault)
    picture = output or picture_of(case, fault=fault)
    check_format(picture)
    if test is not None:
        check_new(test)
    corpus = load_corpus(data)
    _one_thread()
    found = explain(properties, factory, case, corpus, fault=planted)
    if issue:
        from harness.peers.environment import versions_of

        print(
            issue_of(found, subject=subject, factory=factory, versions=lambda peer: versions_of(peer, subject)), end=""
        )
        raise typer.Exit(_replay_code([verdict for _, verdict in found.verdicts]))
    draw(found, picture)
    if json:
        print(json_module.dumps({**to_json(found), "subject": subject, "fault": fault, "picture": str(picture)}))
    else:
        print(f"{case.token()} on {subject}, text {corpus.name} ({corpus.digest})")
        print(*lines(found), f"Picture: {picture}", sep="\n")
    if test is not None:
        write_test(test, found, subject=subject, data=data, fault=fault)
    raise typer.Exit(_replay_code([verdict for _, verdict in found.verdicts]))


@app.command("list")
def list_command() -> None:
    """List properties, kinds of configuration, strata, subjects, faults, rewrites and profiles."""
    from harness.catalogue import known_subjects, properties
    from harness.engine import PROFILES
    from harness.faults.absent import ABSENT
    from harness.faults.registry import load_faults
    from harness.kinds import KINDS, describe
    from harness.rewrites.registry import load_rewrites
    from harness.strata import CUT_STRATA, LAYOUT_STRATA

    print("Properties")
    for prop in properties():
        print(f"  {prop.name}\n    {prop.about} (kinds: {', '.join(prop.kinds)})")
    print("Kinds of configuration")
    for kind in KINDS:
        print(f"  {kind:<6} {describe(kind)}")
    for title, names in (("layouts and sizes", LAYOUT_STRATA), ("cuts between ranks", CUT_STRATA)):
        print(f"Strata of {title}", *(f"  {name}" for name in names), sep="\n")
    print("Subjects")
    for name, known in known_subjects().items():
        print(f"  {name}  {known.about} ({known.source})")
    print("  module:factory  any callable (config, dtype, seed) -> Subject")
    print("  worker:PYTHON:MODULE:FACTORY, or FILE.toml  one in another Python environment")
    print("Faults")
    for fault in load_faults():
        ranks = f" on {', '.join(map(str, fault.ranks))} ranks" if fault.ranks else ""
        print(f"  {fault.name:<4} {fault.title} (caught by {fault.expected}{ranks}; {fault.reference})")
    if ABSENT:
        print("Faults that cannot be planted here", *(f"  {name:<4} {why}" for name, why in ABSENT.items()), sep="\n")
    print("Equivalent rewrites, which nothing may be violated by")
    for rewrite in load_rewrites():
        print(f"  {rewrite.name}  {rewrite.title}")
    print("Profiles")
    for profile in PROFILES.values():
        print(f"  {profile.name:<8} {profile.cases_per_kind} layouts a property and kind")


def main() -> None:
    """Entry point of the console script: runs a command and exits with its code."""
    # `--subject module:factory` names a module of the caller's folder; a console script does not look there by itself.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    exit_with(run_cli)


def run_cli(arguments: list[str]) -> int:
    """Run one command line and return its exit code; bad input is one sentence on stderr and 2."""
    return run_app(app, arguments, name="harness", refused=HarnessError)


def _plan(
    *,
    subject: str,
    profile: str,
    seed: int | None,
    only: list[str] | None,
    data: Path | None,
    fault: str | None,
    cp: tuple[int, ...],
) -> Plan:
    from harness.catalogue import find_fault, find_subject
    from harness.corpus import load_corpus
    from harness.engine import Plan, check_plantable, find_profile

    found = find_profile(profile)
    if fault is not None:
        check_plantable(find_fault(fault), find_subject(subject), name=f"subject {subject}")
    if seed is None and not found.derandomize:
        seed = secrets.randbelow(1 << 32)  # drawn here, so that the report can say it
    plan = Plan(
        properties=_property_names(only) if only or cp else _all_of(subject),
        subject=subject,
        profile=found,
        corpus=load_corpus(data),
        data=None if data is None else str(data),
        seed=seed,
        fault=fault,
        cp=cp,
    )
    if not plan.units():
        names = ", ".join(only or [])
        if fault is None:
            ranks = "without --cp" if cp else "with --cp SIZES"
            raise UsageError(got=names, expected=f"properties that say something {ranks}", where="run")
        raise UsageError(got=f"fault {fault} and {names}", expected="a kind, or ranks, that both have", where="run")
    return plan


def _sizes(text: str | None) -> tuple[int, ...]:
    from harness.case import MOST_RANKS

    sizes = [] if text is None else text.split(",")
    if not all(size.isdecimal() and 1 <= int(size) <= MOST_RANKS for size in sizes):
        raise UsageError(got=f"--cp {text}", expected=f"sizes of 1 to {MOST_RANKS}, such as 1,2,4", where="run")
    return tuple(dict.fromkeys(int(size) for size in sizes))


def _property_names(only: list[str] | None) -> tuple[str, ...]:
    from harness.catalogue import find_property, properties

    names = tuple(dict.fromkeys(only)) if only else tuple(prop.name for prop in properties())
    for name in names:
        find_property(name)
    return names


def _all_of(subject: str) -> tuple[str, ...]:
    """Every property that says something of a subject: those of how records are packed if it packs them."""
    from harness.catalogue import find_subject, properties
    from harness.engine.decide import packs_records

    packs = packs_records(find_subject(subject))
    return tuple(prop.name for prop in properties() if packs or prop.looks_at != "data")


def _folder(output: Path | None, profile: str) -> Path:
    """Make the run's folder; a default one is new, a given one may exist."""
    first = f"{_started()}-{profile}"
    wanted = [Path("reports", name) for name in (first, *(f"{first}-{again}" for again in range(2, 100)))]
    try:
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
            return output
        for folder in wanted:
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            return folder
    except OSError as error:
        raise UsageError(got=f"{error.strerror}", expected="a folder to write to", where=str(error.filename)) from error
    raise UsageError(got=f"99 runs named {wanted[0]}", expected="--output DIR", where="reports")


def _started() -> str:
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S")


def _run_with_progress(plan: Plan, *, folder: Path, jobs: int) -> Report:
    from harness.engine import run

    total = len(plan.units())
    finished = 0
    with progress("properties x kinds", total=total) as advance:

        def done(_: UnitResult) -> None:
            nonlocal finished
            finished += 1
            advance()

        try:
            return run(plan, folder=folder, jobs=jobs, done=done)
        except KeyboardInterrupt:
            where = folder / "results.jsonl"
            print(f"harness: interrupted after {finished} of {total} units; they are in {where}", file=sys.stderr)
            raise


def _asked(
    token_or_file: str, *, only: list[str] | None, subject: str, fault: str | None
) -> tuple[Case, list[Property], SubjectFactory, Fault | None]:
    """What is to be checked again; a wrong name or configuration is the caller's mistake, not an undecided check."""
    from harness.catalogue import find_fault, find_property, find_subject
    from harness.engine import check_plantable

    case = _case(token_or_file)
    case.v4config()
    properties = [find_property(name) for name in _property_names(only)]
    factory = find_subject(subject)
    if fault is None:
        return case, properties, factory, None
    planted = find_fault(fault)
    check_plantable(planted, factory, name=f"subject {subject}")
    return case, properties, factory, planted


def _case(token_or_file: str) -> Case:
    from harness.case import Case

    path = Path(token_or_file)
    if not (path.suffix == ".json" or path.is_file()):
        return Case.from_token(token_or_file)
    try:
        return Case.from_json(json_module.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(got=f"{error.strerror}", expected="a readable case file", where=str(path)) from error
    except CaseError as error:
        raise CaseError(got=error.got, expected=error.expected, where=f"{error.where}, {path}") from error
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or one nested without end
        raise UsageError(got=str(error), expected="a case as JSON", where=str(path)) from error


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _detail(verdict: Verdict) -> str:
    if verdict.reason:
        return f": {verdict.reason}"
    if verdict.error is None or verdict.bound is None:
        return ""
    return f": largest error {verdict.error:.3g}, bound {verdict.bound:.3g}"


def _replay_code(verdicts: list[Verdict]) -> int:
    """1 if a property is violated, 0 if one holds and none is undecided, else 3."""
    from harness.report import strongest
    from harness.verdict import Outcome

    outcome = strongest(verdict.outcome for verdict in verdicts)
    return {Outcome.VIOLATED: 1, Outcome.HOLDS: 0}.get(outcome, 3)
