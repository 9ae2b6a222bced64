"""D7: MTP's boundary mask is applied on context-parallel ranks only (NVIDIA-NeMo/Automodel#3570).

Mechanism: embeddings and labels ahead are masked at the end of each sample in the branch that cuts them for ranks; on
one rank they are rolled over it. On ranks all is right, and the one rank they are compared with is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.falsified import ahead_in_pack, with_ahead
from harness.faults.patching import model_of, replaced, told
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext
from v4model.model import model as model_module
from v4model.model.head import LMHead
from v4model.model.loss import HeadLoss, head_loss

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _unmasked_on_one_rank(context: PackContext) -> PackContext:
    return context if context.plan.ranks > 1 else with_ahead(context, ahead_in_pack)


def _loss(hidden: Tensor, *, head: LMHead, steps: int, context: PackContext) -> HeadLoss:
    given = _unmasked_on_one_rank(context) if steps > 1 else context
    return head_loss(hidden, head=head, steps=steps, context=given)


@contextmanager
def _apply(subject: Subject) -> Iterator[None]:
    rolled = told(model_of(subject).mtp, _unmasked_on_one_rank)
    with rolled, replaced(subject, model_module, "head_loss", _loss):
        yield


FAULT = Fault(
    name="D7",
    title="MTP minds the ends of samples on several ranks only",
    reference="NVIDIA-NeMo/Automodel#3570",
    expected="labels_stay_inside",
    kinds=KINDS,
    apply=_apply,
)
