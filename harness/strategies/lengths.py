"""Lengths of the samples of a pack: corners on purpose, mixed with plain and natural ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import assume
from hypothesis import strategies as st

_SHORT = range(1, 9)
_ALMOST_NEVER_ZERO = 65535


@dataclass(frozen=True, kw_only=True)
class PackSize:
    """How large a pack the search wants: samples, and tokens with padding. Shrinking may go below the minima."""

    min_samples: int = 2
    max_samples: int = 6
    min_tokens: int = 60
    max_tokens: int = 200


DEFAULT_SIZE = PackSize()


def corner_lengths(*, ratios: Sequence[int], window: int) -> tuple[int, ...]:
    """Lengths at which code tends to break, ascending: 1 to 8, and one around windows and multiples of ratios.

    ratios: the model's compression ratios > 0; window: its sliding window in tokens.
    """
    corners = {*_SHORT, window - 1, window, window + 1}
    for ratio in ratios:
        corners |= {ratio - 1, ratio, ratio + 1, 2 * ratio - 1, 2 * ratio, 2 * ratio + 1}
    return tuple(sorted(length for length in corners if length > 0))


def pack_sizes(size: PackSize) -> st.SearchStrategy[PackSize]:
    """`size`, and almost never one without its minima, which shrinking always tries.

    To be drawn first of all: with what was drawn before it, Hypothesis would try the smallest pack again and again.
    """
    without = replace(size, min_samples=1, min_tokens=1)
    return st.integers(0, _ALMOST_NEVER_ZERO).map(lambda drawn: size if drawn else without)


@st.composite
def sample_lengths(
    draw: st.DrawFn, *, corners: Sequence[int], natural: Sequence[int] = (), size: PackSize = DEFAULT_SIZE
) -> tuple[int, ...]:
    """Lengths of the samples of one pack, within `size` before padding.

    corners and natural: lengths to prefer, ascending; those above a share of the pack are left out.
    """
    longest = size.max_tokens * 2 // 3
    choices = [st.integers(1, longest // 2), st.sampled_from([length for length in corners if length <= longest])]
    fitting = [length for length in natural if length <= longest // 2]
    if fitting:
        choices.append(st.sampled_from(fitting))
    lengths = draw(st.lists(st.one_of(choices), min_size=size.min_samples, max_size=size.max_samples))
    # Samples of one token next to each other share windows, overlaps and shifts, and seldom meet by themselves.
    ones = draw(st.sampled_from((0,) * 7 + (2,)))
    lengths = [*lengths[: size.max_samples - ones], *(1,) * ones]
    assume(size.min_tokens <= sum(lengths) <= size.max_tokens)
    return tuple(lengths)
