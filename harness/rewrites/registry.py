"""What an equivalent rewrite is, how it is planted and counted, and how those of this package are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from harness.faults.patching import replaced
from harness.faults.registry import load_named
from harness.kinds import KINDS

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Ran:
    """How often a rewritten part has run: a rewrite that no run reaches has not been left alone, but not been seen."""

    calls: int = 0

    def counting(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, counting its calls here."""

        def counted(*args: P.args, **kwargs: P.kwargs) -> R:
            self.calls += 1
            return function(*args, **kwargs)

        return counted


@dataclass(frozen=True)
class Rewrite:
    """Another way to compute the same, which no property may be violated by.

    name: short, in snake case. title: what is computed how, one line. apply: plants it into a subject for as long as
    the context lasts, and gives how often it ran. ranks: the numbers of context-parallel ranks on which there is
    something to rewrite; empty for a part of the model on one rank. kinds: the named configurations that have the part.
    """

    name: str
    title: str
    apply: Callable[[Subject], AbstractContextManager[Ran]]
    ranks: tuple[int, ...] = ()
    kinds: tuple[str, ...] = KINDS


Place: TypeAlias = tuple[object, str, Callable[..., Any]]
"""A module or class, a name in it, and the function to be found there."""


@contextmanager
def rewritten(subject: Subject, *places: Place) -> Iterator[Ran]:
    """The functions stand at their places whenever the subject's own forward runs."""
    ran = Ran()
    with ExitStack() as stack:
        for owner, name, function in places:
            stack.enter_context(replaced(subject, owner, name, ran.counting(function)))
        yield ran


def load_rewrites() -> tuple[Rewrite, ...]:
    """Every module-level `REWRITE` of this package's modules, by name; raises ValueError if two have one name."""
    import harness.rewrites

    return load_named(harness.rewrites, "REWRITE", Rewrite)
