"""From what `--subject` says to a factory: an installed name, `module:factory`, or a worker in another environment.

Installed names are those of this package and of the entry-point group `harness.subjects`, which any distribution may
add to:

    [project.entry-points."harness.subjects"]
    mine = "my_package.for_harness:Mine"
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from harness.errors import CRASHES, UsageError
from harness.subjects.protocol import SubjectFactory
from harness.subjects.support import unsupported_by
from harness.subjects.worker.spec import is_worker

GROUP = "harness.subjects"

EXPECTED = "a callable (config, dtype, seed) -> Subject"


@dataclass(frozen=True, kw_only=True)
class Known:
    """A subject with a name. place: its `module:factory`. source: where it comes from, in words. about: one line."""

    place: str
    source: str
    about: str = ""


_OWN = {
    "v4model": Known(
        place="harness.subjects.v4model_one_rank:build",
        source="this package",
        about="the packed model of this repository, one rank, on the CPU",
    ),
    "v4model-cuda": Known(
        place="harness.subjects.v4model_cuda:FLOAT32",
        source="this package",
        about="the same on a CUDA device, with its fast operations, in float32 (isolation in bfloat16 too)",
    ),
    "v4model-cuda-bfloat16": Known(
        place="harness.subjects.v4model_cuda:BFLOAT16",
        source="this package",
        about="the same on a CUDA device, with its fast operations, in bfloat16",
    ),
    "v4model-nccl": Known(
        place="harness.subjects.v4model_one_rank:build_over_nccl",
        source="this package",
        about="the same; with --cp, its ranks on processes have a GPU each and exchange over NCCL",
    ),
}


def known_subjects() -> Mapping[str, Known]:
    """Every subject by name: installed ones, and this package's own, which nothing replaces."""
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return {**{point.name: _installed(point) for point in points}, **_OWN}


def subject_factory(name: str) -> SubjectFactory:
    """The factory of a known name, at `module:factory`, or of a worker; raises UsageError, saying what is wrong."""
    where = f"subject {name}"
    if is_worker(name):
        from harness.subjects.worker.subject import remote_factory

        return remote_factory(name)
    if ":" in name:
        place = name
    else:
        known = known_subjects()
        if name not in known:
            raise unknown("subject", name, known, also=", or module:factory, or a worker")
        place = known[name].place
    factory = attribute(place, where=where)
    check_factory(factory, where=where)
    unsupported_by(factory)
    check_machine = getattr(factory, "check_machine", None)
    if check_machine is not None:
        check_machine()
    return cast(SubjectFactory, factory)


def check_factory(factory: object, *, where: str) -> None:
    """Raises UsageError for what cannot be called with a configuration, a dtype and a seed."""
    if not callable(factory):
        raise UsageError(got=type(factory).__name__, expected=EXPECTED, where=where)
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # a builtin without one: calling it will tell
        return
    try:
        signature.bind(None, None, 0)
    except TypeError as error:
        raise UsageError(got=f"a factory {signature}: {error}", expected=EXPECTED, where=where) from error


def attribute(place: str, *, where: str) -> Any:
    """What stands at `module:attribute`; raises UsageError, with what the import raised."""
    module_name, _, path = place.partition(":")
    if not module_name or not path:
        raise UsageError(got=repr(place), expected="module:attribute", where=where)
    try:
        found: Any = importlib.import_module(module_name)
    except CRASHES as error:  # the module is someone else's code: whatever it raises is a fact about it
        reason = (str(error).splitlines() or [""])[0]
        raise UsageError(
            got=f"{type(error).__name__}: {reason}", expected="a module that can be imported", where=where
        ) from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise UsageError(got=f"no {path!r} in {module_name}", expected="module:attribute", where=where)
        found = getattr(found, name)
    return found


def unknown(what: str, name: str, known: Iterable[str], *, also: str = "") -> UsageError:
    """The error for a name that nothing has: the nearest known name, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    # Names that share words are near even if a letter count says otherwise ("isolation" is no help, "alone" is).
    near = near or [other for other in names if name and name in other][:1]
    expected = f"{near[0]}, perhaps" if near else f"one of {', '.join(names) or '(none)'}"
    return UsageError(got=f"unknown {what} {name!r}", expected=f"{expected}{also}", where="`harness list` shows them")


def _installed(point: EntryPoint) -> Known:
    distribution = point.dist
    source = "an entry point" if distribution is None else f"{distribution.name} {distribution.version}"
    return Known(place=f"{point.module}:{point.attr}", source=source, about=point.value)
