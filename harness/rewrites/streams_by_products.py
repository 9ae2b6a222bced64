"""Residual streams are mixed by products and one sum over them, without a matrix product."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.rewrites.registry import Ran, Rewrite, rewritten
from v4model.layers import hyper
from v4model.model import block
from v4model.ops.precision import wide

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _collapse(streams: Tensor, weight: Tensor) -> Tensor:
    return (weight[:, :, None] * wide(streams)).sum(1).to(streams.dtype)


def _expand(streams: Tensor, out: Tensor, *, post: Tensor, comb: Tensor) -> Tensor:
    mixed = (comb[:, :, :, None] * wide(streams)[:, :, None, :]).sum(1)
    return (mixed + post[:, :, None] * wide(out)[:, None, :]).to(streams.dtype)


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, (hyper, "collapse", _collapse), (block, "expand", _expand))


REWRITE = Rewrite(
    name="streams_by_products",
    title="residual streams are mixed by products and a sum",
    apply=_apply,
)
