"""Other labels than the next token of the sample, or others counted, for the trunk or for the MTP depths."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
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
    return labelled_at(subject, source, at=lambda depth: (depth == 0) == trunk)


def labelled_at(subject: Subject, source: Ahead, *, at: Callable[[int], bool]) -> AbstractContextManager[None]:
    """As `labelled`, at the depths (0 is the trunk) where `at` is true."""

    def loss(hidden: Tensor, *, head: LMHead, steps: int, context: PackContext) -> HeadLoss:
        given = with_ahead(context, source) if at(steps - 1) else context
        return head_loss(hidden, head=head, steps=steps, context=given)

    return replaced(subject, model_module, "head_loss", loss)


def counted_at(
    subject: Subject, counted: Callable[[PackContext, int], Tensor], *, at: Callable[[int], bool]
) -> AbstractContextManager[None]:
    """Labels are right, and counted(context, steps), [n] bool, says which of them the loss adds up where `at` is true.

    steps: how far behind its position a label lies.
    """

    def loss(hidden: Tensor, *, head: LMHead, steps: int, context: PackContext) -> HeadLoss:
        healthy = head_loss(hidden, head=head, steps=steps, context=context)
        if not at(steps - 1):
            return healthy
        own_sum = torch.where(counted(context, steps), healthy.token_nll, 0).sum()
        return replace(healthy, nll_sum=context.ranks.cp.total(own_sum, where=f"loss {steps - 1}, otherwise counted"))

    return replaced(subject, model_module, "head_loss", loss)


def also_labelled(
    subject: Subject, labels: Callable[[PackContext, int], tuple[Tensor, Tensor]], *, at: Callable[[int], bool]
) -> AbstractContextManager[None]:
    """Labels where there are none: labels(context, steps) gives them [n], -1 where none, and [n] bool, which count."""

    def loss(hidden: Tensor, *, head: LMHead, steps: int, context: PackContext) -> HeadLoss:
        healthy = head_loss(hidden, head=head, steps=steps, context=context)
        if not at(steps - 1):
            return healthy
        more, counted = labels(context, steps)
        nll = head.nll(hidden, labels=more)
        own_sum = torch.where(counted, nll, 0).sum()
        more_sum = context.ranks.cp.total(own_sum, where=f"loss {steps - 1}, labels added")
        return HeadLoss(healthy.token_nll + nll, healthy.nll_sum + more_sum)

    return replaced(subject, model_module, "head_loss", loss)


def is_mtp(depth: int) -> bool:
    """Whether a depth is an MTP depth."""
    return depth > 0


def is_second_mtp(depth: int) -> bool:
    """Whether a depth is the second MTP depth."""
    return depth == 2
