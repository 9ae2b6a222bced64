"""The two maps of a picture: sample by sample, and token by token around what the witness names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from matplotlib.colors import LogNorm
from matplotlib.patches import Rectangle

from harness.explain.offence import read_by
from harness.explain.strip import OFFENCE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import Tensor

    from harness.explain.explanation import Explanation

_COLOURS = "viridis_r"
_MOST_LABELS = 20
_MOST_LONG_NAMES = 5
_CHARACTERS = 60
"""About as many characters as stand side by side below a map."""
_LEGEND = "largest change of a result under other token ids (white: not one bit)"


def draw_samples(axes: Axes, explanation: Explanation) -> None:
    """Rows are the samples whose results change, columns those whose token ids do; only the diagonal is right."""
    offence, values = explanation.offence, explanation.samples
    if values is None:
        axes.set_title("What each sample depends on", loc="left")
        _say(axes, explanation.no_map)
        return
    name = "only the diagonal may be coloured" if offence is None else f"offending cell: {offence.name}"
    axes.set_title(f"What each sample depends on\n{name}", loc="left")
    count = len(values)
    if explanation.case.layout().real.all():
        values = values[:, :count]
    _heat(axes, values)
    names = [f"{'sample ' if count <= _MOST_LONG_NAMES else 's'}{sample}" for sample in range(count)]
    _label(axes, names, [*names, *(["padding"] if values.shape[1] > count else [])])
    axes.set_xlabel("token ids changed in")
    axes.set_ylabel("results of")
    if offence is not None:
        column = offence.source if offence.source >= 0 else count
        _frame(axes, offence.query, column)


def draw_tokens(axes: Axes, explanation: Explanation) -> None:
    """Rows are tokens of the query's sample, columns of the sample that it read."""
    found = explanation.tokens
    if found is None:
        axes.set_axis_off()
        return
    layout, witness = explanation.case.layout(), explanation.witness
    _heat(axes, found.values)
    queries, sources = (int(layout.sample[tokens.start]) for tokens in (found.queries, found.sources))
    where = "the trunk" if found.depth == 0 else f"MTP depth {found.depth}"
    axes.set_title(f"Token by token\n{found.kind} of {where}", loc="left")
    axes.set_xlabel(f"token ids changed at tokens of {_sample(sources)}")
    axes.set_ylabel(f"results at tokens of {_sample(queries)}")
    _label(axes, list(map(str, found.queries)), list(map(str, found.sources)))
    if queries == sources >= 0:
        _stair(axes, explanation)
    if witness is None or witness.query is None:
        return
    read = read_by(witness) or witness.query
    row = witness.row
    last = row.last if witness.source is None and row is not None and row.last is not None else read
    if read.token in found.sources and witness.query.token in found.queries:
        width = min(last.token + 1, found.sources.stop) - read.token
        _frame(axes, found.queries.index(witness.query.token), found.sources.index(read.token), width=width)


def _stair(axes: Axes, explanation: Explanation) -> None:
    """The line right of which a query would read its future."""
    found = explanation.tokens
    assert found is not None
    ends = [sum(found.allowed(query, source) for source in found.sources) - 0.5 for query in found.queries]
    corners = [(end, row + side) for row, end in enumerate(ends) for side in (-0.5, 0.5)]
    axes.plot([x for x, _ in corners], [y for _, y in corners], color="black", linewidth=0.8)


def _heat(axes: Axes, values: Tensor) -> None:
    seen = values[(values > 0) & values.isfinite()]
    high = float(seen.max()) if len(seen) else 1.0
    low = min(float(seen.min()) if len(seen) else 1.0, high / 10)
    shown = values.nan_to_num(posinf=high).clamp(max=high).masked_fill(values == 0, math.nan)
    norm = LogNorm(low, high)
    image = axes.imshow(shown.numpy(), cmap=_COLOURS, norm=norm, interpolation="nearest", aspect="auto")
    figure = axes.get_figure()
    assert figure is not None
    ticks = [low, math.sqrt(low * high), high]
    bar = figure.colorbar(image, ax=axes, label=_LEGEND, location="bottom", aspect=40, ticks=ticks, format="%.2g")
    bar.ax.minorticks_off()


def _label(axes: Axes, rows: list[str], columns: list[str]) -> None:
    """Names at the cells, every n-th where there are many."""
    for names, set_ticks in ((rows, axes.set_yticks), (columns, axes.set_xticks)):
        step = -(-len(names) // _MOST_LABELS)
        places = list(range(0, len(names), step))
        set_ticks(places, [names[place] for place in places])
    if sum(map(len, columns[:: -(-len(columns) // _MOST_LABELS)])) > _CHARACTERS:
        axes.tick_params(axis="x", rotation=90)


def _frame(axes: Axes, row: int, column: int, *, width: int = 1) -> None:
    corner = (column - 0.5, row - 0.5)
    axes.add_patch(Rectangle(corner, width, 1, fill=False, edgecolor=OFFENCE, linewidth=2.5, clip_on=False, zorder=3))


def _say(axes: Axes, text: str) -> None:
    axes.set_axis_off()
    axes.text(0, 0.5, f"No map: {text}", transform=axes.transAxes, wrap=True)


def _sample(sample: int) -> str:
    return "padding" if sample < 0 else f"sample {sample}"
