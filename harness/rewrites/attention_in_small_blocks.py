"""The attention takes three queries at a time, each block with as many columns as its own queries need."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.rewrites.registry import Ran, Rewrite, rewritten
from v4model.layers.attention import base
from v4model.ops.attend import attend
from v4model.pack.visibility import Visibility

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


_QUERIES = 3


def _attend(
    q: Tensor,
    kv: Tensor,
    pool: Tensor,
    sinks: Tensor,
    *,
    visibility: Visibility,
    ratio: int,
    picks: Tensor | None,
    first_key: int,
    block_tokens: int,
    wants_mass: bool,
) -> tuple[Tensor, Tensor]:
    return attend(
        q,
        kv,
        pool,
        sinks,
        visibility=visibility,
        ratio=ratio,
        picks=picks,
        first_key=first_key,
        block_tokens=min(block_tokens, _QUERIES),
        wants_mass=wants_mass,
    )


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, (base, "attend", _attend))


REWRITE = Rewrite(
    name="attention_in_small_blocks",
    title="the attention takes three queries at a time",
    apply=_apply,
)
