"""The pack as coloured segments: samples, padding, windows, cuts of the ranks, and what the witness names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.properties.measure import tokens_of
from harness.properties.runs import paddings_of
from harness.subjects.record import layer_of
from harness.witness import Reading

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from harness.explain.explanation import Explanation
    from v4model import PackLayout

# Okabe and Ito's colours, which the colour-blind can tell apart; the frame's vermilion is not among the samples'.
SAMPLES = (
    ("#56B4E9", "black"),
    ("#E69F00", "black"),
    ("#009E73", "black"),
    ("#F0E442", "black"),
    ("#CC79A7", "black"),
    ("#0072B2", "white"),
)
"""Fill and ink of the samples, in turn."""
OFFENCE = "#D55E00"
PADDING = "#DDDDDD"

_MOST_TICKS = 200
_CHARACTERS = 140
"""About as many characters of a label as the strip is wide."""


def draw_pack(axes: Axes, explanation: Explanation) -> None:
    """Samples in a bar, window grids above it, marks of the witness below."""
    layout = explanation.case.layout()
    _bar(axes, layout)
    rows = _windows(axes, explanation, layout)
    _marks(axes, explanation)
    top = 1 + 0.3 * rows + 0.15
    top = _cuts(axes, explanation, layout, top=top)
    axes.set_xlim(-0.01 * layout.total, 1.01 * layout.total)
    axes.set_ylim(-1.3, top)
    axes.set_yticks([])
    axes.set_xlabel("token of the pack")
    axes.spines[["top", "left", "right"]].set_visible(False)
    padding = layout.total - sum(layout.lengths)
    title = (
        f"The pack: {layout.total} tokens, {layout.num_samples} {'sample' if layout.num_samples == 1 else 'samples'}"
    )
    axes.set_title(f"{title}, {padding} of padding" if padding else title, loc="left")


def _bar(axes: Axes, layout: PackLayout) -> None:
    between, tail = paddings_of(layout)
    paddings = [*between[:-1], tail]
    for sample, (start, length, padding) in enumerate(zip(layout.starts, layout.lengths, paddings, strict=True)):
        colour, ink = SAMPLES[sample % len(SAMPLES)]
        axes.broken_barh([(start, length)], (0, 1), facecolor=colour, edgecolor="black", linewidth=0.6)
        room = _CHARACTERS * length / layout.total
        label = next((text for text in (f"sample {sample}", f"s{sample}", f"{sample}") if len(text) + 1 <= room), None)
        if label is not None:
            # On top of the cuts, which may run through it.
            box = {"facecolor": colour, "edgecolor": "none", "pad": 1}
            axes.text(start + length / 2, 0.5, label, ha="center", va="center", color=ink, bbox=box, zorder=5)
        if padding:
            axes.broken_barh(
                [(start + length, padding)], (0, 1), facecolor=PADDING, edgecolor="#888888", hatch="///", linewidth=0.6
            )


def _windows(axes: Axes, explanation: Explanation, layout: PackLayout) -> int:
    """A row of window grids for each ratio, that of the witness's layer in its colour; returns how many."""
    config, witness = explanation.case.v4config(), explanation.witness
    layer = None if witness is None or witness.at is None else witness.layer
    own = None
    # Another subject's recorder may name its layers otherwise.
    if layer is not None and layer.startswith(("layers.", "mtp.")):
        own = config.compress_ratios[layer_of(layer, num_hidden_layers=config.num_hidden_layers)]
    rows = 0
    for ratio in config.ratios:
        spans = [
            (start + window * ratio, ratio)
            for start, length in zip(layout.starts, layout.lengths, strict=True)
            for window in range(length // ratio)
        ]
        if not spans or len(spans) > _MOST_TICKS:
            continue
        y = 1.08 + 0.3 * rows
        edge = "black" if ratio == own else "#888888"
        axes.broken_barh(spans, (y, 0.2), facecolor="white", edgecolor=edge, linewidth=0.8)
        _beside(axes, y + 0.1, f"windows of {ratio}")
        rows += 1
    return rows


def _cuts(axes: Axes, explanation: Explanation, layout: PackLayout, *, top: float) -> float:
    """Lines where one rank's tokens end, with the ranks' numbers; returns the room they leave above."""
    ranks = explanation.case.ranks
    if ranks is None or ranks == 1:
        return top
    size = -(-layout.total // ranks)
    for rank in range(ranks):
        if rank and rank * size <= layout.total:
            axes.axvline(rank * size, color="black", linestyle=(0, (4, 2)), linewidth=1.2)
        first, last = rank * size, min((rank + 1) * size, layout.total)
        if first < last and (last - first) * _CHARACTERS > 4 * layout.total:
            axes.text((first + last) / 2, top + 0.15, f"rank {rank}", ha="center", va="center", fontsize=8)
    return top + 0.35


def _marks(axes: Axes, explanation: Explanation) -> None:
    """Below the bar: the wrong rows of the first layer that has any, the pooled row read there, query and source."""
    witness = explanation.witness
    if witness is None:
        return
    parting = None if explanation.comparison is None else explanation.comparison.parting()
    if parting is not None:
        layer, wrong = parting
        axes.broken_barh([(token, 1) for token in tokens_of(wrong).tolist()], (-0.2, 0.14), facecolor=OFFENCE)
        _beside(axes, -0.13, f"wrong in\n{layer}")
    row = witness.row
    if row is not None and row.first is not None and row.last is not None and row.first != row.last:
        begin, end = row.first.token, row.last.token + 1
        arrow = {"arrowstyle": "<->", "color": OFFENCE, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (begin, -0.4), (end, -0.4), arrowprops=arrow)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        axes.text((begin + end) / 2, -0.62, "pooled row", ha="center", va="center", color=OFFENCE, bbox=box, zorder=5)
    places = {"query": witness.query, "source": witness.source}
    if witness.source is None and row is not None and row.first == row.last:
        places["not read" if row.reading is Reading.MISSED else "read"] = row.first
    _point(axes, [(place.token + 0.5, name) for name, place in places.items() if place is not None])


def _point(axes: Axes, marks: list[tuple[float, str]]) -> None:
    """Arrows up to the bar. Of two marks the left one's name stands left of its arrow, the right one's right of it."""
    sides = ["right", "left"] if len(marks) > 1 else ["center"] * len(marks)
    for (x, name), side in zip(sorted(marks), sides, strict=True):
        axes.annotate("", (x, 0), (x, -1), arrowprops={"arrowstyle": "-|>", "color": "black"})
        pad = {"right": f"{name}  ", "left": f"  {name}", "center": name}[side]
        axes.text(x, -1.1, pad, ha=side, va="center", fontweight="bold")


def _beside(axes: Axes, y: float, text: str) -> None:
    axes.annotate(text, (1.005, y), xycoords=("axes fraction", "data"), va="center", fontsize=8)
