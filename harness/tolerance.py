"""Bounds, each with the reason for its size, and the measures they are compared with.

A bound never depends on the machine, the device or an environment variable.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

# The same operations in the same order on the same shapes: not one bit may differ.
EXACT = 0.0

# float64 sums taken in another order (a sample alone, a shifted offset, another padding). One operation rounds by
# 1.1e-16; a few thousand terms and a few layers of them stay below 1e-12 of the tensor's maximum, and a defect
# (a row that mixes two samples, a shifted label) moves at least 1e-6. 1e-9 keeps three decades from either.
REORDERED_F64 = 1e-9

# The same for a subject that computes in float32, whatever the dtype of its values. One operation rounds by 6e-8, 2^29
# times as much, so the 1e-11 that healthy float64 code was seen apart at worst (see below) becomes 5e-3; twice that is
# allowed. A defect that moves less than a hundredth of a tensor's maximum is not seen, which float64 would show.
REORDERED_F32 = 1e-2

# How far an embedding is moved, relative to itself, to learn whether rounding decides what a row gives (a top-k among
# nearly equal values): 16 roundings, as many as a few layers of sums leave.
ROUNDINGS_F64 = 16 * 2.0**-53
ROUNDINGS_F32 = 16 * 2.0**-24

# The largest relative error of one rounding, by the name of the dtype.
ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-9}

# A fast operation may be twice as far from the truth as the plain one of its dtype is (suites/v4model/ops/fast). Of two
# runs that are compared, both may be that far to opposite sides; of two values between which a choice is made, both may
# differ by so much between the runs. The plain error is measured on each case (harness/properties/rounding.py), and is
# taken for one rounding at least.
TWIN = 2.0
TWINS_APART = 2 * TWIN

# The plain error is measured in one layout. In another one values round alike, but a gradient was seen past the bound
# that followed from it by 1.2 times, in a sample of one token; twice as much is allowed.
LAYOUTS_APART = 2.0

# Gradients of scalars that are sums of cancelling terms (the mHC scales have one element) were seen 1e-11 of their own
# maximum apart on healthy code, and may be far smaller than the model's other gradients. A tensor's error is therefore
# never measured against less than this share of the largest gradient of the whole model.
GRADIENT_FLOOR_SHARE = 1e-3

# A value where exactly zero is due in theory, but computed as a difference of two rounded numbers of this relative
# size: the plain NumPy reading against the model, both float64, same formula.
ORACLE_F64 = 1e-10

# A slope to one side, by a difference in float64, against a gradient, relative to the size of its parts: at a step of
# 1e-6 of the parameters rounding of the sums (1e-16 of a few hundred) leaves 1e-8 and curvature 1e-6 to 1e-5. A wrong
# gradient of one tensor among a hundred leaves a tenth of its own error.
DIFFERENCES_F64 = 1e-4


def largest_difference(got: Tensor, expected: Tensor) -> float:
    """The largest absolute difference of two tensors of one shape; NaN in only one of them counts as infinite.

    Raises ValueError if the shapes differ, because broadcasting would hide a defect.
    """
    if got.shape != expected.shape:
        raise ValueError(f"got shape {tuple(got.shape)}; expected {tuple(expected.shape)}; where: largest_difference")
    if got.numel() == 0:
        return 0.0
    got, expected = got.detach(), expected.detach()
    largest = float((got - expected).abs().max())
    if math.isfinite(largest):
        return largest
    # inf - inf is nan; equal values (infinite ones included) and nan in both places are no difference.
    same = (got == expected) | (got.isnan() & expected.isnan())
    difference = (got - expected).abs().masked_fill(same, 0.0)
    return float(difference.nan_to_num(nan=math.inf, posinf=math.inf).max())


def largest_magnitude(values: Tensor) -> float:
    """The largest absolute value of a tensor, 0 for an empty one."""
    return float(values.detach().abs().max()) if values.numel() else 0.0


def relative_error(got: Tensor, expected: Tensor, *, floor: float) -> float:
    """The largest difference, relative to max(the largest expected magnitude, floor).

    floor (same unit as the tensors, >= 0) keeps tiny tensors from being judged against rounding of large ones.
    Both zero gives 0; a difference where the scale is 0 gives infinity.
    """
    difference = largest_difference(got, expected)
    if difference == 0.0:
        return 0.0
    scale = max(largest_magnitude(expected), floor)
    if not scale > 0.0 or math.isinf(difference):
        return math.inf
    return difference / scale
