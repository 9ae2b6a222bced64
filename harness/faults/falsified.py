"""Falsified copies of what a model knows of its pack.

Contexts, layouts and visibilities are shared between forward passes, so nothing here changes one in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch import Tensor

from v4model import PackLayout
from v4model.layers.context import PackContext, Rotation
from v4model.pack.shard import ShardPlan
from v4model.pack.visibility import PoolVisibility, visibility_of
from v4model.pack.windows import Windows

FalsifyPool: TypeAlias = Callable[[PackContext, PoolVisibility], PoolVisibility]
Ahead: TypeAlias = Callable[[PackLayout, int], Tensor]
"""ahead(layout, steps) is [T] int64, the token that each position reads `steps` further, -1 where none."""
PoolPosition: TypeAlias = Callable[[PackContext, Windows], Tensor]
"""position(context, windows) is [w] int64, where each of a rank's pooled rows is rotated to."""


def own(context: PackContext, of_pack: Tensor) -> Tensor:
    """[n]: the rank's rows of a table [T] of the whole pack, on the context's device."""
    return of_pack[context.plan.start : context.plan.end].to(context.tokens.device)


def tokens_of(context: PackContext) -> Tensor:
    """[n] int64: the tokens of the rank, numbered over the pack."""
    return torch.arange(context.plan.start, context.plan.end, device=context.tokens.device)


def starts_of(layout: PackLayout) -> Tensor:
    """[T] int64: the first token of each token's sample (padding: the token itself)."""
    return torch.arange(layout.total) - layout.position


def as_one_sample(context: PackContext) -> PackContext:
    """What is known of a pack whose layout is lost: one sample from its first token to its last."""
    old, device = context.visibility, context.tokens.device
    plan = ShardPlan(PackLayout.single(context.layout.total), context.plan.rank, context.plan.ranks)
    visibility = visibility_of(plan.layout, window=old.window, ratios=tuple(old.pools), device=device)
    one = replace(
        context,
        plan=plan,
        visibility=visibility.part(plan.start, plan.end),
        sample=torch.zeros_like(context.sample),
    )
    return counted_over_the_pack(one)


def counted_over_the_pack(context: PackContext) -> PackContext:
    """The context with the number of a token in the pack for its position in the sample."""
    before = context.key_position.numel() - context.tokens.numel()
    token = torch.arange(context.plan.start - before, context.plan.end, device=context.tokens.device)
    return replace(context, key_position=token)


@dataclass(frozen=True, eq=False)
class _PlanOfPools(ShardPlan):
    pools: Mapping[int, PoolVisibility]

    def windows(self, *, ratio: int) -> tuple[range, ...]:
        # As ever, a window belongs to the rank of its last token; they are in the order of these.
        last = self.pools[ratio].windows.first_token + (ratio - 1)
        ends = [int((last < self.bounds(rank)[0]).sum()) for rank in range(self.ranks + 1)]
        return tuple(range(first, end) for first, end in pairwise(ends))


def with_pools(context: PackContext, falsify: FalsifyPool) -> PackContext:
    """The context with other pooled rows, or other rows visible, at every compression ratio."""
    pools = MappingProxyType({ratio: falsify(context, pool) for ratio, pool in context.visibility.pools.items()})
    plan = _PlanOfPools(context.layout, context.plan.rank, context.plan.ranks, pools)
    return replace(context, plan=plan, visibility=replace(context.visibility, pools=pools))


def pool_on_the_grid(context: PackContext, pool: PoolVisibility, *, mixed: bool) -> PoolVisibility:
    """Windows cut at multiples of the ratio in the pack instead of from each sample's start.

    A window belongs to the sample of its last token, and a query sees those of its sample that end at it or before.
    mixed: windows that begin before their sample are among them; else no query sees them.
    """
    ratio, layout, start = pool.windows.ratio, context.layout, starts_of(context.layout)
    first = (start if mixed else start + ratio - 1) // ratio
    begin = torch.arange(layout.total // ratio) * ratio
    last = begin + ratio - 1
    windows = Windows(ratio, begin, begin // ratio - first[last], layout.sample[last])
    base = own(context, first)
    visible = torch.where(context.sample >= 0, ((tokens_of(context) + 1) // ratio - base).clamp_min(0), 0)
    return PoolVisibility(windows.to(base.device), base, visible)


def pool_from(context: PackContext, pool: PoolVisibility, anchors: Sequence[int]) -> PoolVisibility:
    """Windows of each sample cut from a token of its own on, `anchors`, instead of from the sample's start.

    A query of the sample sees those that end at it or before.
    """
    ratio, layout = pool.windows.ratio, context.layout
    ends = torch.tensor(layout.starts) + torch.tensor(layout.lengths)
    anchor = torch.tensor(anchors)
    counts = (ends - anchor).clamp_min(0) // ratio
    before = counts.cumsum(0) - counts
    sample = torch.arange(layout.num_samples).repeat_interleave(counts)
    index = torch.arange(len(sample)) - before[sample]
    windows = Windows(ratio, anchor[sample] + index * ratio, index, sample)
    token = tokens_of(context)
    # Padding reads the first sample's, and sees nothing.
    own_sample = context.sample.clamp_min(0)
    complete = (token + 1 - anchor.to(token.device)[own_sample]).clamp_min(0) // ratio
    visible = torch.where(context.sample >= 0, complete, 0)
    return PoolVisibility(windows.to(token.device), before.to(token.device)[own_sample], visible)


@dataclass(frozen=True, eq=False)
class _Reaching(Windows):
    lowest: Tensor

    def slots(self, *, back: int = 0) -> Tensor:
        tokens = self.first_token[:, None] - back * self.ratio + torch.arange(self.ratio, device=self.index.device)
        return torch.where(tokens >= self.lowest[:, None], tokens, -1)

    def part(self, rows: range) -> Windows:
        return reaching(super().part(rows), self.lowest[rows.start : rows.stop])

    def starting_at(self, token: int) -> Windows:
        return reaching(super().starting_at(token), self.lowest - token)


def reaching(windows: Windows, lowest: Tensor) -> Windows:
    """The windows with slots, their own and those before them, that go back to the token `lowest` [W] of each."""
    return _Reaching(windows.ratio, windows.first_token, windows.index, windows.sample, lowest)


@dataclass(frozen=True, eq=False)
class _Shifted(PackContext):
    source: Ahead

    def ahead(self, steps: int) -> Tensor:
        source = own(self, self.source(self.layout, steps))
        return torch.where(source >= 0, source - self.plan.start, -1)


def with_ahead(context: PackContext, source: Ahead) -> PackContext:
    """The context with another idea of which token is `steps` further."""
    return _Shifted(**_values(context), source=source)


@dataclass(frozen=True, eq=False)
class _PoolRotated(PackContext):
    position: PoolPosition

    @cached_property
    def pool_rotation(self) -> dict[int, Rotation]:
        return {
            ratio: self._rotation(self.position(self, windows), compressed=True)
            for ratio, windows in self.own_windows.items()
        }


def with_pool_positions(context: PackContext, position: PoolPosition) -> PackContext:
    """The context with pooled rows, those of indexers too, rotated to other positions."""
    return _PoolRotated(**_values(context), position=position)


def _values(context: PackContext) -> dict[str, Any]:
    return {field.name: getattr(context, field.name) for field in fields(PackContext)}


def ahead_in_pack(layout: PackLayout, steps: int) -> Tensor:
    """The token `steps` further in the pack, of whatever sample; -1 for padding and where that token is padding."""
    token = torch.arange(layout.total)
    source = torch.where(token + steps < layout.total, token + steps, -1)
    return torch.where(layout.real & layout.real[source] & (source >= 0), source, -1)
