"""How a fault takes hold of what makes packs of records, and what faults of packing share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeAlias
from unittest import mock

import numpy as np
import numpy.typing as npt

from harness.errors import UsageError
from harness.subjects.v4model_data import V4Data
from v4model.data import packed
from v4model.data.packing import Assignment, assign
from v4model.data.recipe import Mode, Recipe

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

Pack: TypeAlias = list[int]
"""Numbers of samples."""


@contextmanager
def in_data(subject: Subject, *places: tuple[object, str, object]) -> Iterator[None]:
    """Names of modules or classes stand for other values while the context lasts, whoever in this process asks.

    Raises UsageError for a subject whose packs are not made there.
    """
    if not isinstance(subject, V4Data):
        raise UsageError(got=subject.name, expected="a subject that packs by v4model.data", where="planting a fault")
    with ExitStack() as stack:
        for owner, name, value in places:
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


def assigning(
    subject: Subject, change: Callable[[list[Pack], npt.ArrayLike, int], list[Pack]]
) -> AbstractContextManager[None]:
    """change(packs, slots, window) -> packs takes the place of the packs that the samples were assigned to."""

    def changed(slots: npt.ArrayLike, *, window: int, mode: Mode, seed: int) -> Assignment:
        found = assign(slots, window=window, mode=mode, seed=seed)
        ends = np.cumsum(found.samples_per_pack)[:-1]
        packs = change([part.tolist() for part in np.split(found.order, ends)], slots, window)
        order = np.array([sample for pack in packs for sample in pack], dtype=np.int64)
        return Assignment(order, np.array([len(pack) for pack in packs], dtype=np.int64))

    return in_data(subject, (packed, "assign", changed))


Content: TypeAlias = Callable[[Recipe, str, str], tuple[Recipe, str, str]]
"""Of a recipe and the digests of source and tokenizer, what enters the key."""

_healthy_key = Recipe.key


def keyed(subject: Subject, content: Content) -> AbstractContextManager[None]:
    """The key of cached packs is made of `content`."""

    def key(recipe: Recipe, *, source_digest: str, tokenizer_digest: str) -> str:
        seen, source, tokenizer = content(recipe, source_digest, tokenizer_digest)
        return _healthy_key(seen, source_digest=source, tokenizer_digest=tokenizer)

    return in_data(subject, (Recipe, "key", key))
