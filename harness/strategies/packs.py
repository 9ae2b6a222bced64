"""Cases: lengths with padding inside and at the tail, a seed, and a configuration."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import assume
from hypothesis import strategies as st

from harness.case import Case
from harness.kinds import config_from_text
from harness.strategies.configs import configs
from harness.strategies.lengths import DEFAULT_SIZE, PackSize, corner_lengths, pack_sizes, sample_lengths

_LARGEST_SEED = 9_999
_LARGEST_PADDING = 9
_LARGEST_TAIL = 19


@st.composite
def cases(
    draw: st.DrawFn,
    kind: str,
    *,
    size: PackSize = DEFAULT_SIZE,
    natural: Sequence[int] = (),
    dtypes: Sequence[str] = ("float64",),
) -> Case:
    """Cases of one named configuration, plain and changed, ragged, within `size`; the first dtype is the simplest.

    natural: lengths of real samples in tokens, drawn beside corner lengths and plain ones. A third of the cases have
    padding after some samples, two fifths padding at the tail. Shrinks towards one short sample without padding.
    """
    drawn_size = draw(pack_sizes(size))
    config = draw(configs(kind))
    built = config_from_text(config)
    corners = corner_lengths(ratios=built.ratios, window=built.sliding_window)
    lengths = draw(sample_lengths(corners=corners, natural=natural, size=drawn_size))
    slots = lengths
    if draw(st.sampled_from(("none", "none", "interior"))) == "interior":
        paddings = draw(st.lists(st.integers(0, _LARGEST_PADDING), min_size=len(lengths), max_size=len(lengths)))
        slots = tuple(length + padding for length, padding in zip(lengths, paddings, strict=True))
    tail = draw(st.one_of(st.just(0), st.integers(0, _LARGEST_TAIL)))
    total = sum(slots) + tail
    assume(total <= size.max_tokens)
    return Case(
        config=config,
        lengths=lengths,
        slots=slots,
        total=total,
        seed=draw(st.integers(0, _LARGEST_SEED)),
        dtype=draw(st.sampled_from(dtypes)),
    )
