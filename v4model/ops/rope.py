"""Partial interleaved rotary embedding on the last r channels (section 2.3), with YaRN frequencies."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from v4model.config import Yarn
from v4model.ops.precision import wide, wide_dtype
from v4model.ops.twins import has_fast_twin


def inverse_frequencies(width: int, *, theta: float, yarn: Yarn | None) -> Tensor:
    """[r/2] float64: theta^(-2i/r), slowed down by YaRN's ramp where configured.

    Between the pairs that turn `beta_fast` and `beta_slow` times in the original length the frequency blends from
    unchanged to divided by `factor`.
    """
    pair = torch.arange(width // 2, dtype=torch.float64)
    frequencies = theta ** (-2 * pair / width)
    if yarn is None:
        return frequencies

    def pair_that_turns(times: float) -> float:
        length = yarn.original_max_position_embeddings
        return width * math.log(length / (2 * math.pi * times)) / (2 * math.log(theta))

    low = max(math.floor(pair_that_turns(yarn.beta_fast)), 0)
    high = min(math.ceil(pair_that_turns(yarn.beta_slow)), width - 1)
    # Equal ends would divide by zero; then every pair from `low` on is scaled, as in the limit of a steep ramp.
    ramp = ((pair - low) / max(high - low, 1e-3)).clamp(0, 1)
    return frequencies * ((1 - ramp) + ramp / yarn.factor)


def rotations(position: Tensor, *, frequencies: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin [N, r/2] of each position, in float32 or better for a model of `dtype`.

    Angles are float64 and computed for the positions at hand, so no table can be too short or too coarse.
    """
    angle = position[:, None].to(torch.float64) * frequencies.to(position.device)
    return angle.cos().to(wide_dtype(dtype)), angle.sin().to(wide_dtype(dtype))


@has_fast_twin("rope")
def rotate(x: Tensor, rotation: tuple[Tensor, Tensor], *, inverse: bool = False) -> Tensor:
    """Turns pairs (2i, 2i+1) of the last r channels of x [N, ..., d]: (a cos - b sin, a sin + b cos), out of place."""
    cos, sin = (table.view(table.shape[0], *(1,) * (x.ndim - 2), table.shape[1]) for table in rotation)
    # One complex product does both lines of the rotation.
    turn = torch.complex(cos, -sin if inverse else sin)
    kept, turned = x.split([x.shape[-1] - 2 * cos.shape[-1], 2 * cos.shape[-1]], dim=-1)
    pairs = torch.view_as_complex(wide(turned).unflatten(-1, (-1, 2)).contiguous()) * turn
    return torch.cat([kept, torch.view_as_real(pairs).flatten(-2).to(x.dtype)], dim=-1)
