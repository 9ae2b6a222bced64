"""Pack: token ids with their layout and loss mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from v4model.errors import PackError
from v4model.pack.layout import PackLayout


@dataclass(frozen=True, eq=False)
class Pack:
    """One row of token ids and what is needed to read it.

    Args:
        tokens: [T] int64 token ids; ids at padding are never read.
        layout: where the samples lie.
        supervised: [T] bool, True where the token counts as a **label**; None: every token. Padding never counts.

    Raises:
        PackError: shapes or dtypes that do not fit the layout.
    """

    tokens: Tensor
    layout: PackLayout
    supervised: Tensor

    def __init__(self, tokens: Tensor, *, layout: PackLayout, supervised: Tensor | None = None) -> None:
        if not isinstance(layout, PackLayout):
            raise PackError(got=f"a layout of type {type(layout).__name__}", expected="a PackLayout")
        if tokens.dtype != torch.int64 or tokens.ndim != 1:
            raise PackError(got=f"tokens {tokens.dtype} {list(tokens.shape)}", expected="int64 [T]")
        if tokens.numel() != layout.total:
            raise PackError(
                got=f"{tokens.numel()} tokens",
                expected=f"{layout.total}, as in the layout (declare padding with total=)",
                where=f"tokens [{min(tokens.numel(), layout.total)}, {max(tokens.numel(), layout.total)})",
            )
        mask = torch.ones_like(tokens, dtype=torch.bool) if supervised is None else supervised
        if mask.dtype != torch.bool or mask.shape != tokens.shape:
            raise PackError(got=f"supervised {mask.dtype} {list(mask.shape)}", expected=f"bool [{tokens.numel()}]")
        object.__setattr__(self, "tokens", tokens)
        object.__setattr__(self, "layout", layout)
        object.__setattr__(self, "supervised", mask.to(tokens.device) & layout.real.to(tokens.device))

    @classmethod
    def from_samples(
        cls,
        samples: Sequence[Sequence[int]],
        *,
        supervised: Sequence[Sequence[bool]] | None = None,
        total: int | None = None,
    ) -> Pack:
        """Lays samples one after another, with padding behind the last one up to `total` tokens."""
        layout = PackLayout.from_lengths([len(sample) for sample in samples], total=total)
        masks = [[True] * len(sample) for sample in samples] if supervised is None else supervised
        if len(masks) != len(samples):
            raise PackError(got=f"{len(masks)} masks", expected=f"one a sample, {len(samples)}")
        for index, (sample, mask) in enumerate(zip(samples, masks, strict=True)):
            if len(sample) != len(mask):
                raise PackError(
                    got=f"{len(mask)} mask entries",
                    expected=f"{len(sample)}",
                    where=f"sample {index} of {len(samples)}",
                )
        tail = layout.total - layout.real_tokens
        return cls(
            torch.tensor([token for sample in samples for token in sample] + [0] * tail, dtype=torch.int64),
            layout=layout,
            supervised=torch.tensor([flag for mask in masks for flag in mask] + [False] * tail),
        )
