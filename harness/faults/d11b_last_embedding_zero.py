"""D11b: the embedding of a sample's last token is zero for MTP.

Mechanism: the mask at the end of each sample is one token too wide: it takes the last valid position of each depth with
the invalid ones. One position a sample and depth is wrong, by its embedding and by what its router counts.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.falsified import with_ahead
from harness.faults.patching import model_of, told
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model import PackLayout

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _one_less(layout: PackLayout, steps: int) -> Tensor:
    return torch.where(layout.ahead(steps + 1) >= 0, layout.ahead(steps), -1)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(model_of(subject).mtp, lambda context: with_ahead(context, _one_less))


FAULT = Fault(
    name="D11b",
    title="the last valid position of each sample embeds zero in MTP",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
)
