"""Results that an earlier run of the same tests left, so that a run which was stopped can go on."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_RED = {"failure", "error"}


@dataclass(frozen=True, kw_only=True)
class Kept:
    """header is what the earlier run said of itself, None where there is nothing to keep; tests are its lines."""

    header: Mapping[str, Any] | None = None
    tests: tuple[Mapping[str, Any], ...] = ()

    @property
    def ids(self) -> list[str]:
        """Of the tests that have a result, each once."""
        return list(dict.fromkeys(str(test["nodeid"]) for test in self.tests))

    @property
    def is_red(self) -> bool:
        """Whether one of them failed."""
        return any(entry["tag"] in _RED for test in self.tests for entry in test["entries"])

    def check(self, header: Mapping[str, Any]) -> None:
        """Raise pytest.UsageError if a run with this header is not the same one."""
        if self.header is None:
            return
        for name in ("commit", "selection", "facts"):
            if self.header[name] != header[name]:
                raise pytest.UsageError(
                    f"got {name} {header[name]}; expected {self.header[name]}, as before; where: --results-continue"
                )


def read_kept(path: Path) -> Kept:
    """What a file of results holds; a line that was cut by the end of its run is left out."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return Kept()
    found = [json.loads(line) for line in lines[:-1]]
    return Kept(
        header=found[0] if found and found[0]["kind"] == "header" else None,
        tests=tuple(line for line in found if line["kind"] == "test"),
    )


class Deselect:
    """Leaves out tests by their whole id; pytest's own `--deselect` takes an id as the beginning of others."""

    def __init__(self, ids: Collection[str]) -> None:
        self._ids = frozenset(ids)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave them out."""
        gone = [item for item in items if item.nodeid in self._ids]
        if gone:
            config.hook.pytest_deselected(items=gone)
            items[:] = [item for item in items if item.nodeid not in self._ids]
