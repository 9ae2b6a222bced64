"""What faults of context-parallel ranks share. On one rank they do nothing: that is what ranks are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor, nn

from harness.faults.patching import Falsify, replaced, told
from v4model import PackLayout
from v4model.layers.context import PackContext
from v4model.model import model as model_module
from v4model.model.head import LMHead
from v4model.model.loss import HeadLoss, head_loss
from v4model.ops.shift import shift
from v4model.pack.shard import ShardPlan
from v4model.pack.visibility import visibility_of

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def told_on_ranks(modules: Iterable[nn.Module], falsify: Falsify) -> AbstractContextManager[None]:
    """The modules, and all below them, are told a falsified context wherever there is more than one rank."""
    return told(modules, lambda context: falsify(context) if context.plan.ranks > 1 else context)


def with_layout(context: PackContext, layout: PackLayout) -> PackContext:
    """What the rank would know of its share of another layout of as many tokens."""
    plan, device = ShardPlan(layout, context.plan.rank, context.plan.ranks), context.tokens.device
    visibility = visibility_of(
        layout, window=context.visibility.window, ratios=tuple(context.visibility.pools), device=device
    )
    before = context.key_position.numel() - context.tokens.numel()
    return replace(
        context,
        plan=plan,
        visibility=visibility.part(plan.start, plan.end),
        sample=layout.sample[plan.start : plan.end].to(device),
        key_position=layout.position[plan.start - before : plan.end].to(device),
    )


@dataclass(frozen=True, eq=False)
class LocalLoss:
    """What a rank knows of one head's loss: nll of its supervised labels, their number, and that of all ranks."""

    nll_sum: Tensor
    count: Tensor
    whole_count: Tensor
    ranks: int


Share: TypeAlias = Callable[[LocalLoss], Tensor]
"""What the rank adds to the sum of all; right is its nll_sum."""


def adding(subject: Subject, share: Share) -> AbstractContextManager[None]:
    """On ranks, every head's loss is the sum of such shares."""

    def loss(hidden: Tensor, *, head: LMHead, steps: int, context: PackContext) -> HeadLoss:
        healthy, cp = head_loss(hidden, head=head, steps=steps, context=context), context.ranks.cp
        if cp.ranks == 1:
            return healthy
        counted = shift(context.ahead_supervised, source=context.ahead(steps), fill=False)
        count = counted.sum()
        local = LocalLoss(
            nll_sum=torch.where(counted, healthy.token_nll, 0).sum(),
            count=count,
            whole_count=cp.total(count, where="labels"),
            ranks=cp.ranks,
        )
        return replace(healthy, nll_sum=cp.total(share(local), where="shares of the loss"))

    return replaced(subject, model_module, "head_loss", loss)
