"""Manifold-constrained hyper-connections: K residual streams around each part of a block (section 2.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from v4model.config import V4Config
from v4model.ops.blocks import by_blocks
from v4model.ops.norm import rms_norm
from v4model.ops.precision import wide, wide_dtype
from v4model.ops.sinkhorn import sinkhorn
from v4model.ops.twins import has_fast_twin


class HyperConnection(nn.Module):
    """Collapses the streams to a part's input and expands its output back; fn, base and scale in float32 or better."""

    def __init__(self, config: V4Config, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.streams = config.hc_mult
        self.iterations, self.eps, self.norm_eps = (config.hc_sinkhorn_iters, config.hc_eps, config.rms_norm_eps)
        rows = (2 + self.streams) * self.streams
        self.fn = nn.Parameter(torch.empty(rows, self.streams * config.hidden_size, dtype=wide_dtype(dtype)))
        self.base = nn.Parameter(torch.empty(rows, dtype=wide_dtype(dtype)))
        self.scale = nn.Parameter(torch.empty(3, dtype=wide_dtype(dtype)))

    def forward(self, streams: Tensor, *, recompute: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """streams [T, K, D] -> collapsed [T, D], post [T, K], comb [T, K, K] (the latter two for `expand`)."""
        x, post, comb = by_blocks(self._of_block, streams, recompute=recompute)
        return x, post, comb

    def _of_block(self, streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = normed_product(streams, self.fn, eps=self.norm_eps)
        sizes = [self.streams, self.streams, self.streams**2]
        pre, post, comb = (
            part * scale + base
            for part, scale, base in zip(y.split(sizes, 1), self.scale, self.base.split(sizes), strict=True)
        )
        pre = torch.sigmoid(pre) + self.eps
        post = 2 * torch.sigmoid(post)
        comb = torch.softmax(comb.unflatten(1, (self.streams, self.streams)), dim=-1) + self.eps
        comb = sinkhorn(comb, iterations=self.iterations, eps=self.eps)
        return collapse(streams, pre), post, comb


@has_fast_twin("streams")
def normed_product(streams: Tensor, fn: Tensor, *, eps: float) -> Tensor:
    """fn [R, K * D] times the normed streams [T, K, D] of each token, in float32 or better -> [T, R]."""
    return F.linear(rms_norm(wide(streams).flatten(1), eps=eps), fn)


@has_fast_twin("streams")
def collapse(streams: Tensor, weight: Tensor) -> Tensor:
    """sum_k weight_k X_k: streams [T, K, D], weight [T, K] -> [T, D]."""
    return (weight[:, None, :] @ wide(streams))[:, 0].to(streams.dtype)


@has_fast_twin("streams")
def expand(streams: Tensor, out: Tensor, *, post: Tensor, comb: Tensor) -> Tensor:
    """post_k out + sum_j comb[j, k] X_j: comb acts transposed, summed over its first axis. -> [T, K, D]."""
    mixed = comb.transpose(1, 2) @ wide(streams)
    return (post[:, :, None] * wide(out)[:, None, :] + mixed).to(streams.dtype)


class HyperHead(nn.Module):
    """Collapses the streams [T, K, D] -> [T, D] before a final norm; no Sinkhorn."""

    def __init__(self, config: V4Config, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.eps, self.norm_eps = config.hc_eps, config.rms_norm_eps
        streams = config.hc_mult
        self.hc_fn = nn.Parameter(torch.empty(streams, streams * config.hidden_size, dtype=wide_dtype(dtype)))
        self.hc_base = nn.Parameter(torch.empty(streams, dtype=wide_dtype(dtype)))
        self.hc_scale = nn.Parameter(torch.empty(1, dtype=wide_dtype(dtype)))

    def forward(self, streams: Tensor) -> Tensor:
        y = normed_product(streams, self.hc_fn, eps=self.norm_eps)
        return collapse(streams, torch.sigmoid(self.hc_scale * y + self.hc_base) + self.eps)
