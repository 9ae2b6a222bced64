"""The command `harness check-subject`."""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "check-subject",
        epilog="Exit codes: 0 nothing to change; 1 something is wrong; 2 usage; 3 the subject could not be asked.",
    )(check_subject_command)


def check_subject_command(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="As --subject takes it.")],
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Tell the author of an adapter what is missing or wrong with it, step by step."""
    import torch

    from harness.catalogue import find_subject
    from harness.checkup import check_subject, exit_code, lines, summary, to_json
    from harness.corpus import load_corpus

    torch.set_num_threads(1)
    factory, findings = find_subject(subject), []
    for finding in check_subject(factory, load_corpus(None)):
        findings.append(finding)
        if not json:
            print(*lines(finding), sep="\n", flush=True)
    print(json_module.dumps(to_json(findings, subject=subject), indent=2) if json else summary(findings))
    raise typer.Exit(exit_code(findings))
