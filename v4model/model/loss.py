"""Losses of a step from its sums and counts (spec section 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from v4model.config import V4Config
from v4model.layers.context import PackContext
from v4model.model.block import BlockOutput
from v4model.model.head import LMHead
from v4model.ops.precision import wide_dtype
from v4model.ops.shift import shift
from v4model.pack.counts import StepCounts


@dataclass(frozen=True, eq=False)
class HeadLoss:
    """nll [n] of the rank's tokens wherever a label exists, and its sum over supervised labels of all ranks."""

    token_nll: Tensor
    nll_sum: Tensor


def head_loss(hidden: Tensor, *, head: LMHead, steps: int, context: PackContext) -> HeadLoss:
    """Cross entropy of hidden [n, D] against the token `steps` further in the same sample.

    The loss mask belongs to the label token: position t counts iff token t + steps is supervised.
    """
    source = context.ahead(steps)
    nll = head.nll(hidden, labels=shift(context.ahead_tokens, source=source, fill=-1))
    counts = shift(context.ahead_supervised, source=source, fill=False)
    own_sum = torch.where(counts, nll, 0).sum()
    return HeadLoss(nll, context.ranks.cp.total(own_sum, where=f"loss {steps - 1}"))


@dataclass(frozen=True, eq=False)
class StepTerms:
    """Sums of one pack over all its ranks; micro-batches add these, never the losses made of them."""

    nll_sums: tuple[Tensor, ...]
    """Of the trunk, then of each MTP depth; empty on pipeline stages without heads."""
    balance_sums: dict[int, Tensor]
    """By layer with a learned router (MTP blocks behind the trunk's): sum over samples of len_s * L_s."""
    kl_sum: Tensor
    """The indexers' divergences, summed over queries."""

    def detached(self) -> StepTerms:
        """The same sums without their graph."""
        return StepTerms(
            nll_sums=tuple(total.detach() for total in self.nll_sums),
            balance_sums={layer: total.detach() for layer, total in self.balance_sums.items()},
            kl_sum=self.kl_sum.detach(),
        )


@dataclass(frozen=True, eq=False)
class Losses:
    """Scalars: total, and the terms in it (balance and KL with their coefficients)."""

    total: Tensor
    main: Tensor
    mtp: tuple[Tensor, ...]
    balance: Tensor
    kl: Tensor


def step_terms(heads: Sequence[HeadLoss], blocks: Mapping[int, BlockOutput], *, context: PackContext) -> StepTerms:
    """Collects a forward pass: the heads of the trunk and of each depth, and the blocks by layer."""
    zero = torch.zeros((), dtype=wide_dtype(context.dtype), device=context.tokens.device)
    kl = sum((block.kl for block in blocks.values() if block.kl is not None), zero)
    return StepTerms(
        nll_sums=tuple(head.nll_sum for head in heads),
        balance_sums={layer: block.router.balance_sum for layer, block in blocks.items() if block.router is not None},
        kl_sum=context.ranks.cp.total(kl, where="kl"),
    )


def losses(terms: StepTerms, *, counts: StepCounts, config: V4Config) -> Losses:
    """total = main + mtp_scale / depths * sum of mtp + balance + KL.

    With the counts of a whole step and the terms of one of its packs: that pack's share of the losses.
    """
    zero = torch.zeros_like(terms.kl_sum)
    nlls = tuple(total / max(count, 1) for total, count in zip(terms.nll_sums, counts.labels, strict=False))
    main, mtp = (nlls[0], nlls[1:]) if nlls else (zero, ())
    balances = (total / max(counts.tokens[config.depth(layer)], 1) for layer, total in terms.balance_sums.items())
    balance = config.balance_coef * sum(balances, zero)
    kl = config.index_kl_coef * terms.kl_sum / max(counts.tokens[0], 1)
    total = main + config.mtp_scale / max(len(mtp), 1) * sum(mtp, zero) + balance + kl
    return Losses(total, main, mtp, balance, kl)
