"""The precision of what must not be rounded to the model's dtype: norms, gates, mHC, softmax, sinks."""

from __future__ import annotations

import torch
from torch import Tensor


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for a float64 model, float32 for any other."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def wide(x: Tensor) -> Tensor:
    """`x` in float32 or better."""
    return x.to(wide_dtype(x.dtype))
