"""Attention of the three layer kinds: they differ only in the pooled rows their queries see."""

from __future__ import annotations

import torch

from v4model.config import V4Config
from v4model.layers.attention.base import Attended, Attention
from v4model.layers.attention.csa import CSAAttention
from v4model.layers.attention.dense import DenseAttention
from v4model.layers.attention.hca import HCAAttention

__all__ = ["Attended", "Attention", "CSAAttention", "DenseAttention", "HCAAttention", "attention_of"]


def attention_of(config: V4Config, *, layer: int, dtype: torch.dtype) -> Attention:
    """The attention of trunk layer `layer`, or of MTP block `layer - num_hidden_layers`."""
    kinds = {"dense": DenseAttention, "csa": CSAAttention, "hca": HCAAttention}
    return kinds[config.kind(layer)](config, layer=layer, dtype=dtype)
