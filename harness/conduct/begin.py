"""How a night begins: its seed, and under what it runs."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from harness.commit import DIRTY, commit_of
from harness.conduct.record import NightRecord
from harness.errors import UsageError

_PACKAGES = ("v4pack", "torch", "megatron-core", "transformers", "hypothesis", "pytest")


def new_record(*, seed: int, budget_s: float | None) -> NightRecord:
    """The record of a night that begins now."""
    commit = commit_of(Path.cwd())
    return NightRecord(
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        seed=seed,
        commit=commit.removesuffix(DIRTY),
        dirty=commit.endswith(DIRTY),
        versions={"python": platform.python_version(), **_versions()},
        device=f"cpu, {len(os.sched_getaffinity(0))} cores",
        budget_s=budget_s,
    )


def check_same(record: NightRecord, folder: Path) -> None:
    """Raise UsageError if the code is no longer what the night began with."""
    now = commit_of(Path.cwd())
    if now.removesuffix(DIRTY) != record.commit:
        raise UsageError(
            got=f"commit {now or 'unknown'}", expected=f"{record.commit or 'none'}, the night's own", where=str(folder)
        )


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
