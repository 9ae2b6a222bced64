"""G3: the last, unfilled pack is dropped (huggingface/trl#1230).

Mechanism: packs are handed on when they are full; what is left in the buffer when the records end is not.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import numpy.typing as npt

from harness.faults.in_data import Pack, assigning
from harness.faults.registry import Fault

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _full_ones(packs: list[Pack], _slots: npt.ArrayLike, _window: int) -> list[Pack]:
    return packs[:-1] or packs


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return assigning(subject, _full_ones)


FAULT = Fault(
    name="G3",
    title="the last, unfilled pack is dropped",
    reference="huggingface/trl#1230",
    expected="packing_keeps_every_sample",
    kinds=("all",),
    apply=_apply,
)
