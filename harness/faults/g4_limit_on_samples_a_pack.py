"""G4: a limit on the samples of a pack leaves most of it padding (AMD-AGI/Primus#1062: 81% at 131,072 tokens).

Mechanism: a pack is closed at its fourth sample, however short they were.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import numpy.typing as npt

from harness.faults.in_data import Pack, assigning
from harness.faults.registry import Fault

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


_MOST = 4


def _closed_early(packs: list[Pack], _slots: npt.ArrayLike, _window: int) -> list[Pack]:
    return [pack[start : start + _MOST] for pack in packs for start in range(0, len(pack), _MOST)]


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return assigning(subject, _closed_early)


FAULT = Fault(
    name="G4",
    title="a pack is closed at its fourth sample",
    reference="AMD-AGI/Primus#1062",
    expected="packing_keeps_every_sample",
    kinds=("all",),
    apply=_apply,
)
