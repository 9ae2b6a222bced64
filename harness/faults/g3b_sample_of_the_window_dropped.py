"""G3b: a sample of exactly the window's length is dropped as too long (neuronx#22).

Mechanism: `length < window` where `length <= window` is meant.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.in_data import in_data
from harness.faults.registry import Fault
from v4model.data import packed
from v4model.data.recipe import Recipe
from v4model.data.sources import Located, Sample
from v4model.data.table import Losses, SampleTable, tabulate

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _shorter_ones(samples: Iterable[Located], *, recipe: Recipe) -> tuple[SampleTable, Losses]:
    kept = (
        (where, one) for where, one in samples if not (isinstance(one, Sample) and len(one.tokens) == recipe.window)
    )
    return tabulate(kept, recipe=recipe)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return in_data(subject, (packed, "tabulate", _shorter_ones))


FAULT = Fault(
    name="G3b",
    title="a sample of exactly the window's length is dropped",
    reference="neuronx#22",
    expected="packing_keeps_every_sample",
    kinds=("all",),
    apply=_apply,
)
