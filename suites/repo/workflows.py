"""Reads workflows of GitHub Actions and says what is wrong with them. None means clean."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

COMMANDS = {".ci/run", '.ci/nightly "$BUDGET"'}
"""All that a workflow may run: the same commands work on any machine."""

_PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
_FOREIGN = {"pull_request_target", "workflow_run", "issue_comment"}
"""Triggers that give the rights of the repository to code of whoever asks."""


def problems(text: str) -> list[str]:
    """Everything wrong with a workflow, one sentence each."""
    data = yaml.safe_load(text)
    triggers = data[True]  # YAML 1.1, which GitHub does not read, takes `on` for a truth value
    found = [f"trigger {name}" for name in _FOREIGN & set(triggers)]
    found += [f"no full hash and version: {line}" for line in _used(text) if not _PINNED.fullmatch(line)]
    if data.get("permissions") != {"contents": "read"}:
        found.append(f"permissions {data.get('permissions')}")
    for name, job in data["jobs"].items():
        found += [f"job {name}: {said}" for said in _of_job(job)]
    return found


def _used(text: str) -> list[str]:
    return re.findall(r"^\s*(?:- )?uses: *(.+?) *$", text, re.MULTILINE)


def _of_job(job: dict[str, Any]) -> Iterator[str]:
    if "permissions" in job:
        yield f"permissions {job['permissions']}"
    if "timeout-minutes" not in job:
        yield "no timeout-minutes"
    for step in job["steps"]:
        if "run" in step and step["run"] not in COMMANDS:
            yield f"runs {step['run']}"
        checks_out = step.get("uses", "").startswith("actions/checkout@")
        if checks_out and step.get("with", {}).get("persist-credentials") is not False:
            yield "a checkout that keeps its credentials"
