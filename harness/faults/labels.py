"""Other labels than the next token of the sample, for the trunk or for the MTP depths."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.falsified import Ahead, with_ahead
from harness.faults.patching import replaced
from v4model.layers.context import PackContext
from v4model.model import model as model_module
from v4model.model.head import LMHead
from v4model.model.loss import HeadLoss, head_loss

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def labelled(subject: Subject, source: Ahead, *, trunk: bool) -> AbstractContextManager[None]:
    """Labels, and their place in the loss mask, come from `source`: the trunk's (trunk=True) or every MTP depth's."""

    def loss(hidden: Tensor, *, head: LMHead, steps: int, context: PackContext) -> HeadLoss:
        wrong = (steps == 1) == trunk
        return head_loss(hidden, head=head, steps=steps, context=with_ahead(context, source) if wrong else context)

    return replaced(subject, model_module, "head_loss", loss)
