"""What the harness has, by name: properties, subjects, faults."""

from __future__ import annotations

from harness.errors import UsageError
from harness.faults.registry import Fault, load_faults
from harness.properties import Property, every_property
from harness.subjects.protocol import SubjectFactory
from harness.subjects.resolve import attribute, known_subjects, subject_factory, unknown

__all__ = ["find_fault", "find_property", "find_subject", "known_subjects", "properties", "unknown"]


def properties() -> tuple[Property, ...]:
    """Every property of `harness.properties`, in the order of its modules' names."""
    return every_property()


def find_property(name: str) -> Property:
    """The property of a name, or the one at `module:attribute`; raises UsageError, naming the nearest."""
    if ":" in name:
        found = attribute(name, where=f"property {name}")
        if not isinstance(found, Property):
            raise UsageError(got=type(found).__name__, expected="a Property", where=f"property {name}")
        return found
    known = {prop.name: prop for prop in properties()}
    if name not in known:
        raise unknown("property", name, known)
    return known[name]


def find_subject(name: str) -> SubjectFactory:
    """The factory of a named subject, or the one at `module:factory`; raises UsageError."""
    return subject_factory(name)


def find_fault(name: str) -> Fault:
    """The fault of a name ("A1"); raises UsageError."""
    known = {fault.name: fault for fault in load_faults()}
    if name not in known:
        raise unknown("fault", name, known)
    return known[name]
