"""Choices that rounding decides: a top-k between values that two runs cannot tell apart says nothing of a leak."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.properties.measure import place_of, tokens_of
from harness.subjects.record import NONE, leaf_of
from harness.tolerance import largest_magnitude

if TYPE_CHECKING:
    from harness.properties.parting import Comparison
    from harness.subjects.record import Record


def decided_by_rounding(comparison: Comparison) -> str | None:
    """Why the two runs of a comparison may part without a defect, None if they may not.

    At every row of the first layer that parts, they choose among values that differ, by less than the bound of
    rounding. Values that are equal to the bit are no excuse: ties have a rule, the lower window or expert first.
    """
    parting = comparison.parting()
    if parting is None:
        return None
    layer, wrong = parting
    margins = [(_margin(comparison, layer, at), at) for at in tokens_of(wrong).tolist()]
    if any(margin is None for margin, _ in margins):
        return None
    margin, at = min((margin, at) for margin, at in margins if margin is not None)
    place = place_of(comparison.layout, at)
    return f"at {place} the choice in {layer} hangs on a margin of {margin:.1e}, which rounding decides"


def _margin(comparison: Comparison, layer: str, at: int) -> float | None:
    """The largest distance between what only one run chose and what only the other did, if rounding can bridge it."""
    got, expected = (_chosen(record, layer, at) for record in (comparison.got, comparison.expected))
    ours = sorted(value for name, value in got.items() if name not in expected)
    theirs = sorted(value for name, value in expected.items() if name not in got)
    if not ours or len(ours) != len(theirs):
        return None
    margin = max(abs(one - other) for one, other in zip(ours, theirs, strict=True))
    scale = largest_magnitude(comparison.expected[_values(layer)])
    return margin if 0 < margin <= comparison.bound * scale else None


def _chosen(record: Record, layer: str, at: int) -> dict[int, float]:
    """What row `at` chose in a layer, with the values that it was chosen by; empty for a layer that chooses nothing."""
    names = f"{layer}.indexer.picks" if leaf_of(layer) == "self_attn" else f"{layer}.experts"
    if names not in record or _values(layer) not in record:
        return {}
    chosen, values = record[names][at].tolist(), record[_values(layer)][at].tolist()
    if leaf_of(layer) == "self_attn":
        return {window: score for window, score in zip(chosen, values, strict=True) if window != NONE}
    return {expert: values[expert] for expert in chosen}


def _values(layer: str) -> str:
    return f"{layer}.indexer.scores" if leaf_of(layer) == "self_attn" else f"{layer}.choice"
