"""G3c: samples are taken out of the list that is iterated over (hiyouga/LLaMA-Factory#6103).

Mechanism: each removal moves the next element under the iterator, which passes over it, so that of the samples chosen
for a pack every second one is lost.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import numpy.typing as npt

from harness.faults.in_data import Pack, assigning
from harness.faults.registry import Fault

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _taken(packs: list[Pack], _slots: npt.ArrayLike, _window: int) -> list[Pack]:
    found = []
    for pack in packs:
        left, taken = list(pack), []
        for sample in left:
            taken.append(sample)
            left.remove(sample)
        found.append(taken)
    return found


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return assigning(subject, _taken)


FAULT = Fault(
    name="G3c",
    title="samples are taken out of the list that is iterated over",
    reference="hiyouga/LLaMA-Factory#6103",
    expected="packing_keeps_every_sample",
    kinds=("all",),
    apply=_apply,
)
