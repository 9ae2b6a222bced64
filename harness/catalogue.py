"""What the harness has, by name: properties, subjects, faults."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from typing import Any, cast

from harness.errors import UsageError
from harness.faults.registry import Fault, load_faults
from harness.properties import Property, every_property
from harness.subjects.protocol import SubjectFactory

SUBJECTS = {
    "v4model": ("harness.subjects.v4model_one_rank:build", "the packed model of this repository, one rank, on the CPU"),
}
"""Name of a subject, where its factory is, and one line about it."""


def properties() -> tuple[Property, ...]:
    """Every property of `harness.properties`, in the order of its modules' names."""
    return every_property()


def find_property(name: str) -> Property:
    """The property of a name, or the one at `module:attribute`; raises UsageError, naming the nearest."""
    if ":" in name:
        found = _attribute(name, what="property")
        if not isinstance(found, Property):
            raise UsageError(got=type(found).__name__, expected="a Property", where=f"property {name}")
        return found
    known = {prop.name: prop for prop in properties()}
    if name not in known:
        raise unknown("property", name, known)
    return known[name]


def find_subject(name: str) -> SubjectFactory:
    """The factory of a named subject, or the one at `module:factory`; raises UsageError."""
    if ":" not in name and name not in SUBJECTS:
        raise unknown("subject", name, SUBJECTS, also=", or module:factory")
    found = _attribute(name if ":" in name else SUBJECTS[name][0], what="subject")
    if not callable(found):
        raise UsageError(
            got=type(found).__name__, expected="a callable (config, dtype, seed) -> Subject", where=f"subject {name}"
        )
    return cast(SubjectFactory, found)


def find_fault(name: str) -> Fault:
    """The fault of a name ("A1"); raises UsageError."""
    known = {fault.name: fault for fault in load_faults()}
    if name not in known:
        raise unknown("fault", name, known)
    return known[name]


def unknown(what: str, name: str, known: Iterable[str], *, also: str = "") -> UsageError:
    """The error for a name that nothing has: the nearest known name, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    # Names that share words are near even if a letter count says otherwise ("isolation" is no help, "alone" is).
    near = near or [other for other in names if name and name in other][:1]
    expected = f"{near[0]}, perhaps" if near else f"one of {', '.join(names) or '(none)'}"
    return UsageError(got=f"unknown {what} {name!r}", expected=f"{expected}{also}", where="`harness list` shows them")


def _attribute(place: str, *, what: str) -> Any:
    module_name, _, attribute = place.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the module is someone else's code: whatever it raises is a fact about it
        reason = (str(error).splitlines() or [""])[0]
        raise UsageError(
            got=f"{type(error).__name__}: {reason}", expected="a module that can be imported", where=f"{what} {place}"
        ) from error
    if not hasattr(module, attribute):
        raise UsageError(got=f"no {attribute!r} in {module_name}", expected="module:attribute", where=f"{what} {place}")
    return getattr(module, attribute)
