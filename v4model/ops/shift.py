"""Shifts inside samples: next tokens, their embeddings and their masks."""

from __future__ import annotations

import torch
from torch import Tensor


def shift(x: Tensor, *, source: Tensor, fill: int | bool) -> Tensor:
    """x[source] for x [T], `fill` where the source is -1.

    Labels are `shift(tokens, source=layout.ahead(1), fill=-1)`.
    """
    return torch.where(source >= 0, x[source.clamp_min(0)], fill)
