"""D4: a padded pack is rolled by unpadded boundaries (NVIDIA/Megatron-LM#4494, #4495, #6205; megatron-core 0.16.1).

Mechanism: `roll_tensor` shifts each stretch between two boundaries by one and clears its last token. It is given the
boundaries of the samples without padding, which are not those of the slots that the tokens lie in:
[11, 12, 13, 0, 21, 22, 0, 0] with real ends 3, 5 and slots 4, 8 becomes [12, 13, 0, 21, 0, 22, 0, 0] instead of
[12, 13, 0, 0, 22, 0, 0, 0]. Each MTP depth rolls once more; its labels roll from those of the trunk, which are right.
Shows where padding lies before a sample, never without padding or with padding at the tail only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.corners import INTERIOR_PADDING
from harness.faults.falsified import with_ahead
from harness.faults.labels import labelled
from harness.faults.patching import model_of, told
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model import PackLayout

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def rolled(layout: PackLayout, steps: int) -> Tensor:
    """[T]: the token that `steps` rolls bring to each place, -1 where they cleared it."""
    token = torch.arange(layout.total)
    ends = torch.tensor(layout.lengths).cumsum(0)
    once = torch.where(token < ends[-1], token + 1, token)
    once[ends - 1] = -1
    source = token
    for _ in range(steps):
        source = torch.where(once >= 0, source[once], -1)
    # A padding token has no embedding and is no label, whoever reads it.
    return torch.where(layout.real & (source >= 0) & layout.real[source], source, -1)


def _label(layout: PackLayout, steps: int) -> Tensor:
    source = rolled(layout, steps - 1)
    return torch.where(source >= 0, layout.ahead(1)[source], -1)


@contextmanager
def _apply(subject: Subject) -> Iterator[None]:
    shifted = told(model_of(subject).mtp, lambda context: with_ahead(context, rolled))
    with shifted, labelled(subject, _label, trunk=False):
        yield


FAULT = Fault(
    name="D4",
    title="MTP rolls a padded pack by the boundaries of the unpadded one",
    reference="NVIDIA/Megatron-LM#4494",
    expected="padding_changes_nothing",
    kinds=KINDS,
    apply=_apply,
    strata=INTERIOR_PADDING,
)
