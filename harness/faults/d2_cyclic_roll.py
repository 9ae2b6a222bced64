"""D2: the pack is rolled in a circle: the last label is the pack's first token (mcore-bridge#89).

Mechanism: `torch.roll` brings the first token to the end. Samples inside the pack have their ends masked, the end of
the stream has not. Shows where no padding follows the last sample.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.labels import labelled_at
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model import PackLayout

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _cyclic(layout: PackLayout, steps: int) -> Tensor:
    behind = torch.arange(layout.total) + steps
    first = behind % layout.total
    round_the_end = (behind >= layout.total) & layout.real & layout.real[first]
    return torch.where(round_the_end, first, layout.ahead(steps))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return labelled_at(subject, _cyclic, at=lambda _depth: True)


FAULT = Fault(
    name="D2",
    title="the last label is the pack's first token",
    reference="mcore-bridge#89",
    expected="labels_stay_inside",
    kinds=KINDS,
    apply=_apply,
    strata=(
        "no padding",
        "interior padding alone",
    ),
)
