"""PackContext: a pack on the model's device, with the tables every layer reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from v4model.config import V4Config
from v4model.errors import PackError
from v4model.ops.rope import inverse_frequencies, rotations
from v4model.pack.collate import Pack
from v4model.pack.layout import PackLayout
from v4model.pack.visibility import Visibility, visibility_of

Rotation = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class PackContext:
    """What a forward pass knows of its pack; made once, required by every layer.

    Token ids at padding are 0 here, whatever the caller put there.
    """

    config: V4Config
    layout: PackLayout
    visibility: Visibility
    dtype: torch.dtype
    tokens: Tensor
    """[T] int64."""
    supervised: Tensor
    """[T] bool, by label token."""
    sample: Tensor
    """[T] int64, -1 for padding."""
    position: Tensor
    """[T] int64."""

    @cached_property
    def token_rotation(self) -> dict[bool, Rotation]:
        """cos and sin [T, r/2] of the tokens, by whether the layer compresses."""
        return {compressed: self._rotation(self.position, compressed=compressed) for compressed in (False, True)}

    @cached_property
    def pool_rotation(self) -> dict[int, Rotation]:
        """cos and sin [W, r/2] of the pooled rows, by ratio: each at its window's first in-sample position."""
        pools = self.visibility.pools
        return {ratio: self._rotation(pool.windows.position, compressed=True) for ratio, pool in pools.items()}

    def ahead(self, steps: int) -> Tensor:
        """`PackLayout.ahead` on the device."""
        return self.layout.ahead(steps).to(self.tokens.device)

    def _rotation(self, position: Tensor, *, compressed: bool) -> Rotation:
        config = self.config
        frequencies = inverse_frequencies(
            config.qk_rope_head_dim,
            theta=config.compress_rope_theta if compressed else config.rope_theta,
            yarn=config.rope_scaling if compressed else None,
        )
        return rotations(position, frequencies=frequencies, dtype=self.dtype)


def context_of(pack: Pack, *, config: V4Config, dtype: torch.dtype, device: torch.device) -> PackContext:
    """Moves a pack to `device` and builds its tables.

    Raises:
        PackError: a real token outside the vocabulary.
    """
    layout = pack.layout
    real = layout.real.to(pack.tokens.device)
    outside = real & ((pack.tokens < 0) | (pack.tokens >= config.vocab_size))
    if outside.any():
        token = int(outside.nonzero()[0])
        raise PackError(
            got=f"token id {int(pack.tokens[token])}",
            expected=f"0 to {config.vocab_size - 1}",
            where=layout.where(token),
        )
    return PackContext(
        config=config,
        layout=layout,
        visibility=visibility_of(layout, window=config.sliding_window, ratios=config.ratios, device=device),
        dtype=dtype,
        tokens=torch.where(real, pack.tokens, 0).to(device),
        supervised=pack.supervised.to(device),
        sample=layout.sample.to(device),
        position=layout.position.to(device),
    )
