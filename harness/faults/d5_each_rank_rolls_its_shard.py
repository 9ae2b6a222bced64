"""D5: each rank rolls its own shard (NVIDIA-NeMo/Automodel#3543, #3544).

Mechanism: labels, and the embeddings that MTP reads ahead, are shifted on each rank by itself: its last positions find
nothing where their next tokens lie behind the cut. The step's divisor still counts these labels, so the loss comes out
a little small (a gap of .019 was reported).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.falsified import with_ahead
from harness.faults.on_ranks import told_on_ranks
from harness.faults.patching import model_of, replaced
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model import PackLayout
from v4model.layers.context import PackContext
from v4model.model import model as model_module
from v4model.model.head import LMHead
from v4model.model.loss import HeadLoss, head_loss

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _rolled(context: PackContext) -> PackContext:
    size = context.plan.size

    def ahead(layout: PackLayout, steps: int) -> Tensor:
        source = layout.ahead(steps)
        return torch.where(source // size == torch.arange(layout.total) // size, source, -1)

    return with_ahead(context, ahead)


def _loss(hidden: Tensor, *, head: LMHead, steps: int, context: PackContext) -> HeadLoss:
    # On one rank the shard is the whole pack, and nothing changes.
    return head_loss(hidden, head=head, steps=steps, context=_rolled(context))


@contextmanager
def _apply(subject: Subject) -> Iterator[None]:
    with told_on_ranks(model_of(subject).mtp, _rolled), replaced(subject, model_module, "head_loss", _loss):
        yield


FAULT = Fault(
    name="D5",
    title="each rank shifts its own shard: labels and MTP's embeddings stop at the cut",
    reference="NVIDIA-NeMo/Automodel#3543",
    expected="cp_matches_one_rank",
    kinds=KINDS,
    apply=_apply,
    ranks=(2, 4),
)
