"""What a fault is, and how the faults of this package are found."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


@dataclass(frozen=True)
class Fault:
    """A defect that can be planted into a subject, and the property that must catch it.

    name: the zoo's short name ("A1"). title: what goes wrong, one line. reference: where it was reported.
    expected: name of the property that must be violated. kinds: the named configurations on which it shows. apply:
    plants the defect for as long as the context lasts and leaves the subject as it was. ranks: the numbers of
    context-parallel ranks to look for it on; empty for a defect that shows on one rank. A defect of ranks leaves the
    same model on one rank healthy, so that it can be compared with. strata: where it shows: a case that meets none of
    these (names of `harness.strata`, of layouts and of cuts) is not one to look for it in; empty for anywhere.
    """

    name: str
    title: str
    reference: str
    expected: str
    kinds: tuple[str, ...]
    apply: Callable[[Subject], AbstractContextManager[None]]
    ranks: tuple[int, ...] = ()
    strata: tuple[str, ...] = ()

    def can_show(self, strata: Collection[str]) -> bool:
        """Whether a case of these strata is one to look for it in."""
        return not self.strata or any(name in strata for name in self.strata)


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Found = TypeVar("Found", bound=_Named)


def load_faults() -> tuple[Fault, ...]:
    """Every module-level `FAULT` of this package's modules, by name ("A1", "A3", "A3b", "A10", "B1").

    Raises ValueError if two faults have one name.
    """
    import harness.faults

    return load_named(harness.faults, "FAULT", Fault)


def load_named(package: ModuleType, attribute: str, kind: type[Found]) -> tuple[Found, ...]:
    """What the modules of a package hold of one class under `attribute`, by name; raises ValueError for one twice."""
    found: dict[str, Found] = {}
    for module in pkgutil.iter_modules(package.__path__):
        value = getattr(importlib.import_module(f"{package.__name__}.{module.name}"), attribute, None)
        if not isinstance(value, kind):
            continue
        if value.name in found:
            what = attribute.lower()
            raise ValueError(f"got a second {what} named {value.name}; expected unique names; where: {module.name}")
        found[value.name] = value
    return tuple(sorted(found.values(), key=lambda value: _order(value.name)))


def _order(name: str) -> tuple[str, int, str]:
    parts = re.fullmatch(r"([A-Z]*)(\d*)(.*)", name)
    assert parts is not None
    return parts[1], int(parts[2] or 0), parts[3]
