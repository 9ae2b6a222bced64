"""PackContext: a rank's share of a pack on the model's device, with the tables every layer reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from v4model.config import V4Config
from v4model.errors import PackError
from v4model.exchange import Ranks
from v4model.ops.rope import inverse_frequencies, rotations
from v4model.pack.collate import Pack
from v4model.pack.layout import PackLayout
from v4model.pack.shard import ShardPlan, shard_of
from v4model.pack.transfer import to_device
from v4model.pack.visibility import Visibility, visibility_of
from v4model.pack.windows import Windows

Rotation = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class PackContext:
    """What a forward pass knows of its pack and of its share of it; made once, required by every layer.

    n tokens are this rank's own (all of them on one rank). Token ids at padding are 0 here, whatever the caller put
    there.
    """

    config: V4Config
    plan: ShardPlan
    ranks: Ranks
    visibility: Visibility
    """Of this rank's queries."""
    dtype: torch.dtype
    recompute: bool
    """Whether blocks drop their intermediate values and compute them again in the backward pass."""
    recompute_within: bool
    """Whether the parts of a block do so too, when it is computed again."""
    tokens: Tensor
    """[n] int64."""
    ahead_tokens: Tensor
    """[n + h] int64: own tokens and those behind them that labels and MTP look ahead to."""
    ahead_supervised: Tensor
    """[n + h] bool, by label token."""
    sample: Tensor
    """[n] int64, -1 for padding."""
    key_position: Tensor
    """[g + n] int64: positions of the tokens before the own ones that any layer looks back to, and of the own."""

    @property
    def layout(self) -> PackLayout:
        """Of the whole pack."""
        return self.plan.layout

    @cached_property
    def _key_rotation(self) -> dict[bool, Rotation]:
        return {compressed: self._rotation(self.key_position, compressed=compressed) for compressed in (False, True)}

    def rotation(self, rows: int, *, compressed: bool) -> Rotation:
        """cos and sin [rows, r/2] of the last `rows` tokens up to the rank's last: n for queries, more with a halo."""
        cos, sin = self._key_rotation[compressed]
        return cos[cos.shape[0] - rows :], sin[sin.shape[0] - rows :]

    @cached_property
    def own_windows(self) -> dict[int, Windows]:
        """By ratio, the windows that end on this rank, with tokens of the whole pack."""
        return {
            ratio: pool.windows.part(self.plan.windows(ratio=ratio)[self.plan.rank])
            for ratio, pool in self.visibility.pools.items()
        }

    @cached_property
    def pool_rotation(self) -> dict[int, Rotation]:
        """cos and sin [w, r/2] of the rank's pooled rows, by ratio: each at its window's first in-sample position."""
        return {ratio: self._rotation(windows.position, compressed=True) for ratio, windows in self.own_windows.items()}

    def ahead(self, steps: int) -> Tensor:
        """[n] int64: index into `ahead_tokens` of the token `steps` further in the same sample, -1 if none."""
        source = self.layout.ahead(steps)[self.plan.start : self.plan.end]
        return to_device(torch.where(source >= 0, source - self.plan.start, -1), self.tokens.device)

    def _rotation(self, position: Tensor, *, compressed: bool) -> Rotation:
        frequencies = _frequencies(self.config, compressed=compressed, device=position.device)
        return rotations(position, frequencies=frequencies, dtype=self.dtype)


@lru_cache(maxsize=64)
def _frequencies(config: V4Config, *, compressed: bool, device: torch.device) -> Tensor:
    """[r/2] float64. Kept on the device: to bring it there makes the host wait."""
    return inverse_frequencies(
        config.qk_rope_head_dim,
        theta=config.compress_rope_theta if compressed else config.rope_theta,
        yarn=config.rope_scaling if compressed else None,
    ).to(device)


@dataclass(frozen=True, eq=False)
class Inputs:
    """What an attention layer reads: x [n, D] of the rank's tokens; halo [h + n, D], the same with those before
    them; q_latent [n, q_lora] of x.
    """

    x: Tensor
    halo: Tensor
    q_latent: Tensor


def context_of(
    pack: Pack,
    *,
    config: V4Config,
    ranks: Ranks,
    dtype: torch.dtype,
    device: torch.device,
    recompute: bool = False,
    recompute_within: bool = True,
) -> PackContext:
    """The context of this rank, from the whole pack.

    Raises:
        PackError: a real token outside the vocabulary.
    """
    _check_vocabulary(pack, vocab_size=config.vocab_size)
    plan = shard_of(pack.layout, rank=ranks.cp.rank, ranks=ranks.cp.ranks)
    layout = plan.layout
    padding = layout.total - pack.layout.total
    own = slice(plan.start, plan.end)
    ahead = slice(plan.start, plan.right(config.num_nextn_predict_layers + 1).stop)
    real = layout.real.to(pack.tokens.device)
    tokens = torch.where(real, F.pad(pack.tokens, (0, padding)), 0)
    visibility = visibility_of(layout, window=config.sliding_window, ratios=config.ratios, device=device)
    reach = max(config.reach(layer) for layer in range(len(config.compress_ratios)))
    return PackContext(
        config=config,
        plan=plan,
        ranks=ranks,
        visibility=visibility.part(plan.start, plan.end),
        dtype=dtype,
        recompute=recompute,
        recompute_within=recompute and recompute_within,
        tokens=to_device(tokens[own], device),
        ahead_tokens=to_device(tokens[ahead], device),
        ahead_supervised=to_device(F.pad(pack.supervised, (0, padding))[ahead], device),
        sample=to_device(layout.sample[own], device),
        key_position=to_device(layout.position[plan.left(reach).start : plan.end], device),
    )


def _check_vocabulary(pack: Pack, *, vocab_size: int) -> None:
    real = pack.layout.real.to(pack.tokens.device)
    outside = real & ((pack.tokens < 0) | (pack.tokens >= vocab_size))
    if outside.any():
        token = int(outside.nonzero()[0])
        raise PackError(
            got=f"token id {int(pack.tokens[token])}", expected=f"0 to {vocab_size - 1}", where=pack.layout.where(token)
        )
