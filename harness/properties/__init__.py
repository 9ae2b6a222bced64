"""Properties: sentences about a subject that can be true or false, one module a family.

A module of this package builds `Property` values and hands each to `register` when it is imported;
`harness.catalogue` imports all of them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from harness.kinds import KINDS

if TYPE_CHECKING:
    from torch import Tensor

    from harness.case import Case
    from harness.corpus import Corpus
    from harness.subjects.protocol import Subject
    from harness.verdict import Verdict
    from v4model import Pack

Check: TypeAlias = Callable[["Subject", "Case", "Corpus"], "Verdict"]
"""Puts one property to the test on one case. The subject is freshly built for that case."""

Observe: TypeAlias = Callable[["Subject", "Pack"], "Mapping[str, Tensor]"]
"""What a property compares, by name, where that is not what the model gives on a pack."""


LooksAt: TypeAlias = Literal["model", "mesh", "data"]


@dataclass(frozen=True)
class Property:
    """A named sentence with the check that decides it.

    name: the sentence in snake case, as printed ("query_sees_only_its_sample"). about: one line for `harness list`.
    check: must be deterministic in the case. kinds: the named configurations on which it makes sense.
    dtypes: those it can decide in, the one to prefer first. rounded: its bound follows rounding, or nothing that it
    looks at is rounded, so that a subject without any of them can be asked in the widest that it has
    (`harness.properties.bounds`).
    ranked: it speaks of ranks, and is vacuous on a subject that runs on none. on_processes: it is also asked of real
    processes. least_ranks: fewer say nothing. looks_at: the model, steps on meshes of ranks, or how data is packed.
    observed: what it compares, for the pack's lengths; None for outputs and gradients of the model.
    """

    name: str
    about: str
    check: Check
    kinds: tuple[str, ...] = KINDS
    dtypes: tuple[str, ...] = ("float64",)
    rounded: bool = False
    ranked: bool = False
    on_processes: bool = False
    least_ranks: int = 1
    looks_at: LooksAt = "model"
    observed: Observe | None = None


_REGISTRY: dict[str, Property] = {}


def register(prop: Property) -> Property:
    """Add a property under its name and return it; raises ValueError for a second one of that name."""
    if prop.name in _REGISTRY and _REGISTRY[prop.name] != prop:
        raise ValueError(f"got a second property named {prop.name}; expected unique names; where: harness.properties")
    unknown = sorted(set(prop.kinds) - set(KINDS))
    if unknown:
        raise ValueError(f"got kinds {unknown}; expected some of {KINDS}; where: property {prop.name}")
    _REGISTRY[prop.name] = prop
    return prop


def registered() -> tuple[Property, ...]:
    """Every property registered so far, in order of registration."""
    return tuple(_REGISTRY.values())


def every_property() -> tuple[Property, ...]:
    """Those of all modules of this package, in the order of the modules' names."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return registered()
