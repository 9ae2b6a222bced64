"""Falsified copies of what a model knows of its pack.

Contexts, layouts and visibilities are shared between forward passes, so nothing here changes one in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import Tensor

from v4model import PackLayout
from v4model.layers.context import PackContext
from v4model.pack.visibility import PoolVisibility, visibility_of
from v4model.pack.windows import Windows

FalsifyPool: TypeAlias = Callable[[PackContext, PoolVisibility], PoolVisibility]
Ahead: TypeAlias = Callable[[PackContext, int], Tensor]
"""ahead(context, steps) is [T] int64, the token that each position reads `steps` further, -1 where none."""


def tokens_of(context: PackContext) -> Tensor:
    """[T] int64: 0, 1, 2, ... on the context's device."""
    return torch.arange(context.layout.total, device=context.tokens.device)


def starts_of(context: PackContext) -> Tensor:
    """[T] int64: the first token of each token's sample (padding: the token itself)."""
    return tokens_of(context) - context.position


def as_one_sample(context: PackContext) -> PackContext:
    """What is known of a pack whose layout is lost: one sample from its first token to its last."""
    old = context.visibility
    layout = PackLayout.single(context.layout.total)
    token = tokens_of(context)
    visibility = visibility_of(layout, window=old.window, ratios=tuple(old.pools), device=token.device)
    return replace(
        context, layout=layout, visibility=visibility, sample=torch.zeros_like(context.sample), position=token
    )


def with_pools(context: PackContext, falsify: FalsifyPool) -> PackContext:
    """The context with other pooled rows, or other rows visible, at every compression ratio."""
    pools = {ratio: falsify(context, pool) for ratio, pool in context.visibility.pools.items()}
    return replace(context, visibility=replace(context.visibility, pools=MappingProxyType(pools)))


def pool_on_the_grid(context: PackContext, pool: PoolVisibility, *, mixed: bool) -> PoolVisibility:
    """Windows cut at multiples of the ratio in the pack instead of from each sample's start.

    A window belongs to the sample of its last token, and a query sees those of its sample that end at it or before.
    mixed: windows that begin before their sample are among them; else no query sees them.
    """
    ratio, token, start = pool.windows.ratio, tokens_of(context), starts_of(context)
    first = (start if mixed else start + ratio - 1) // ratio
    begin = token[: len(token) // ratio] * ratio
    last = begin + ratio - 1
    windows = Windows(ratio, begin, begin // ratio - first[last], context.sample[last])
    visible = torch.where(context.sample >= 0, ((token + 1) // ratio - first).clamp_min(0), 0)
    return PoolVisibility(windows, first, visible)


@dataclass(frozen=True, eq=False)
class _Shifted(PackContext):
    source: Ahead
    healthy: PackContext

    def ahead(self, steps: int) -> Tensor:
        return self.source(self.healthy, steps)


def with_ahead(context: PackContext, source: Ahead) -> PackContext:
    """The context with another idea of which token is `steps` further."""
    values = {field.name: getattr(context, field.name) for field in fields(PackContext)}
    return _Shifted(**values, source=source, healthy=context)


def ahead_in_pack(context: PackContext, steps: int) -> Tensor:
    """The token `steps` further in the pack, of whatever sample; -1 for padding and where that token is padding."""
    token = tokens_of(context)
    source = torch.where(token + steps < len(token), token + steps, -1)
    real = context.sample >= 0
    return torch.where(real & real[source] & (source >= 0), source, -1)
