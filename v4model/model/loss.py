"""Losses of a step from its sums and counts (spec section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from v4model.config import V4Config
from v4model.layers.context import PackContext
from v4model.layers.router import RouterStatistics
from v4model.model.block import BlockOutput
from v4model.model.head import LMHead
from v4model.ops.shift import shift


@dataclass(frozen=True, eq=False)
class HeadLoss:
    """Of one head: nll [n] of own tokens wherever a label exists; its sum over supervised labels and their count, over
    all ranks.
    """

    token_nll: Tensor
    nll_sum: Tensor
    count: Tensor


def head_loss(
    hidden: Tensor, *, head: LMHead, steps: int, context: PackContext
) -> HeadLoss:
    """Cross entropy of hidden [T, D] against the token `steps` further in the same sample.

    The loss mask belongs to the label token: position t counts iff token t + steps is supervised.
    """
    source = context.ahead(steps)
    nll = head.nll(hidden, labels=shift(context.ahead_tokens, source=source, fill=-1))
    counts = shift(context.ahead_supervised, source=source, fill=False)
    total = partial(context.exchange.total, where=f"loss {steps - 1}")
    return HeadLoss(nll, total(torch.where(counts, nll, 0).sum()), total(counts.sum()))


@dataclass(frozen=True, eq=False)
class StepTerms:
    """Sums and counts over all ranks; micro-batches add these, never the losses made of them."""

    main_nll_sum: Tensor
    main_count: Tensor
    mtp_nll_sums: tuple[Tensor, ...]
    mtp_counts: tuple[Tensor, ...]
    balance_sums: tuple[Tensor, ...]
    """A learned router each: sum over samples of len_s * L_s."""
    balance_counts: tuple[Tensor, ...]
    """A learned router each: sum over samples of len_s (valid positions at MTP depths)."""
    kl_sum: Tensor
    real_tokens: int

    @property
    def balance_sum(self) -> Tensor:
        """Over all learned routers."""
        return sum(self.balance_sums, torch.zeros_like(self.kl_sum))


@dataclass(frozen=True, eq=False)
class Losses:
    """Scalars: total, and the terms in it (balance and KL with their coefficients)."""

    total: Tensor
    main: Tensor
    mtp: tuple[Tensor, ...]
    balance: Tensor
    kl: Tensor


def step_terms(
    heads: list[HeadLoss], blocks: list[BlockOutput], *, context: PackContext
) -> StepTerms:
    """Collects a forward pass: heads are the trunk's and each depth's, blocks all blocks'."""
    routers: list[RouterStatistics] = [
        block.router for block in blocks if block.router is not None
    ]
    kl = sum(
        (block.kl for block in blocks if block.kl is not None),
        torch.zeros_like(heads[0].nll_sum),
    )
    return StepTerms(
        main_nll_sum=heads[0].nll_sum,
        main_count=heads[0].count,
        mtp_nll_sums=tuple(head.nll_sum for head in heads[1:]),
        mtp_counts=tuple(head.count for head in heads[1:]),
        balance_sums=tuple(router.balance_sum for router in routers),
        balance_counts=tuple(router.tokens for router in routers),
        kl_sum=context.exchange.total(kl, where="kl"),
        real_tokens=context.layout.real_tokens,
    )


def losses(terms: StepTerms, *, config: V4Config) -> Losses:
    """total = main + mtp_scale / depths * sum of mtp + balance + KL."""
    zero = torch.zeros_like(terms.main_nll_sum)
    main = terms.main_nll_sum / terms.main_count.clamp_min(1)
    mtp = tuple(
        s / n.clamp_min(1)
        for s, n in zip(terms.mtp_nll_sums, terms.mtp_counts, strict=True)
    )
    balances = (
        s / n.clamp_min(1)
        for s, n in zip(terms.balance_sums, terms.balance_counts, strict=True)
    )
    balance = config.balance_coef * sum(balances, zero)
    kl = config.index_kl_coef * terms.kl_sum / max(terms.real_tokens, 1)
    total = main + config.mtp_scale / max(len(mtp), 1) * sum(mtp, zero) + balance + kl
    return Losses(total, main, mtp, balance, kl)
