"""What a worker is started from, as the command line names it.

`worker:PYTHON:MODULE:FACTORY` names an interpreter and what it imports. A file says more:

    # mine.toml
    python = "../envs/mine/bin/python"      # relative to this file
    factory = "mine.for_harness:Mine"
    path = ["src"]                          # optional: more folders to import from, relative to this file
    environment = {TORCHDYNAMO_DISABLE = "1"}
    deadline_s = 300                        # optional: an answer that takes longer ends the worker
    threads = 1                             # optional: torch's, in the worker
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import UsageError

PREFIX = "worker:"
SUFFIX = ".toml"
DEADLINE_S = 300.0
"""Imports of a whole trainer take a minute on a busy machine; a pack takes seconds."""
_DAY_S = 86_400

_KEYS: Mapping[str, type | tuple[type, ...]] = {
    "python": str,
    "factory": str,
    "path": list,
    "environment": dict,
    "deadline_s": (int, float),
    "threads": int,
}


@dataclass(frozen=True, kw_only=True)
class WorkerSpec:
    """name: as the command line has it. python: the interpreter. factory: `module:factory` there."""

    name: str
    python: str
    factory: str
    paths: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = field(default=())
    deadline_s: float = DEADLINE_S
    threads: int = 1


def is_worker(name: str) -> bool:
    """Whether `--subject NAME` means a worker."""
    return name.startswith(PREFIX) or name.endswith(SUFFIX)


def read_spec(name: str) -> WorkerSpec:
    """The worker that a name or a file tells of; raises UsageError."""
    return _from_file(Path(name), name) if name.endswith(SUFFIX) else _from_name(name)


def _from_name(name: str) -> WorkerSpec:
    parts = name.removeprefix(PREFIX).rsplit(":", 2)
    if len(parts) != 3 or not all(parts):
        raise UsageError(got=repr(name), expected="worker:PYTHON:MODULE:FACTORY", where="--subject")
    python, module, factory = parts
    return WorkerSpec(name=name, python=_interpreter(python, name), factory=f"{module}:{factory}")


def _from_file(path: Path, name: str) -> WorkerSpec:
    where = f"subject {name}"
    data = _read(path, where)
    missing = [key for key in ("python", "factory") if key not in data]
    if missing:
        raise UsageError(got=f"no {' and no '.join(missing)}", expected="python and factory", where=where)
    for key, value in data.items():
        if key not in _KEYS:
            raise UsageError(got=f"key {key!r}", expected=f"one of {', '.join(_KEYS)}", where=where)
        if not isinstance(value, _KEYS[key]) or isinstance(value, bool):
            raise UsageError(got=f"{key} = {value!r}", expected=_expected(key), where=where)
    for key, values in (("path", data.get("path", [])), ("environment", [*data.get("environment", {}).values()])):
        if not all(isinstance(value, str) for value in values):
            raise UsageError(got=f"{key} = {data[key]!r}", expected="texts", where=where)
    for key, most in (("deadline_s", _DAY_S), ("threads", 1024)):
        if not 0 < data.get(key, 1) <= most:
            raise UsageError(got=f"{key} = {data[key]}", expected=f"more than 0, at most {most:,}", where=where)
    python = data["python"]
    # A bare name is looked up as a shell would; anything with a folder in it lies beside the file.
    return WorkerSpec(
        name=name,
        python=_interpreter(str(path.parent / python) if "/" in python else python, name),
        factory=data["factory"],
        paths=tuple(str((path.parent / folder).resolve()) for folder in data.get("path", [])),
        environment=tuple(sorted(data.get("environment", {}).items())),
        deadline_s=float(data.get("deadline_s", DEADLINE_S)),
        threads=data.get("threads", 1),
    )


def _read(path: Path, where: str) -> dict[str, Any]:
    import tomllib  # only here: a worker's Python may be older than it

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(got=f"{error.strerror}", expected="a readable file", where=where) from error
    except ValueError as error:
        raise UsageError(got=str(error), expected="TOML", where=where) from error


def _expected(key: str) -> str:
    kinds = {str: "a text", list: "a list of texts", dict: "a table of texts", int: "a whole number"}
    kind = _KEYS[key]
    return "a number" if isinstance(kind, tuple) else kinds[kind]


def _interpreter(python: str, name: str) -> str:
    found = shutil.which(python)
    if found is None:
        raise UsageError(got=f"no program {python}", expected="a Python interpreter", where=f"subject {name}")
    return found
