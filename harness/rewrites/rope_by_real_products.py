"""Pairs are rotated by four real products instead of one complex one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.rewrites.registry import Ran, Rewrite, rewritten
from v4model.layers import compressor, indexer
from v4model.layers.attention import base
from v4model.ops.precision import wide

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _rotate(x: Tensor, rotation: tuple[Tensor, Tensor], *, inverse: bool = False) -> Tensor:
    cos, sin = (table.view(table.shape[0], *(1,) * (x.ndim - 2), table.shape[1]) for table in rotation)
    sin = -sin if inverse else sin
    width = 2 * cos.shape[-1]
    kept, turned = x[..., : x.shape[-1] - width], wide(x[..., x.shape[-1] - width :])
    even, odd = turned[..., 0::2], turned[..., 1::2]
    pairs = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
    return torch.cat([kept, pairs.flatten(-2).to(x.dtype)], dim=-1)


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, *((owner, "rotate", _rotate) for owner in (base, compressor, indexer)))


REWRITE = Rewrite(
    name="rope_by_real_products",
    title="pairs are rotated by real products",
    apply=_apply,
)
