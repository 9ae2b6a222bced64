"""Figures of matplotlib as SVG inside a page: colours follow the page's theme, names do not meet, text stays text."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours that matplotlib only carries: the page's style says what they are, in light and in dark.
_THEMED = ("ink", "quiet", "line", "paper", "good", "warn", "bad", "one", "two", "three", "four", "five")
COLOURS = {name: f"#0a0b{number:02x}" for number, name in enumerate(_THEMED)}
"""A colour by the name of its CSS variable."""
SERIES = ("one", "two", "three", "four", "five")
"""Colours of lines, in turn."""

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text can be found, and read aloud
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.facecolor": "none",
    "axes.edgecolor": COLOURS["line"],
    "axes.labelcolor": COLOURS["quiet"],
    "axes.titlecolor": COLOURS["ink"],
    "text.color": COLOURS["ink"],
    "xtick.color": COLOURS["line"],
    "ytick.color": COLOURS["line"],
    "xtick.labelcolor": COLOURS["quiet"],
    "ytick.labelcolor": COLOURS["quiet"],
    "grid.color": COLOURS["line"],
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.labelcolor": COLOURS["ink"],
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_HEAD = re.compile(r"\A.*?(?=<svg)", re.DOTALL)
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
_SIZE = re.compile(r' (?:width|height)="[^"]*"')
_FONT = re.compile(r"font: ([\d.]+)px [^;\"]*")
_COLOUR = re.compile(r"#0a0b([0-9a-f]{2})")
_ID = re.compile(r'(\bid="|href="#|url\(#)')


@contextmanager
def figure(height: float) -> Iterator[Figure]:
    """An empty figure as wide as the page, height in inches, under the style of the page."""
    with rc_context(_STYLE):
        yield Figure(figsize=(10.5, height), layout="constrained")


def to_svg(drawn: Figure, name: str) -> str:
    """The figure as an element; name is unique in the page."""
    drawn.patch.set_alpha(0)
    with rc_context({"svg.hashsalt": name}):  # the same figure has the same bytes
        buffer = io.StringIO()
        drawn.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = _METADATA.sub("", _HEAD.sub("", buffer.getvalue()))
    text = _FONT.sub(r"font: \1px var(--sans)", text)
    text = _COLOUR.sub(lambda found: f"var(--{_THEMED[int(found[1], 16)]})", text)
    text = _ID.sub(lambda found: f"{found[1]}{name}-", text)
    # The page says how wide it is, and a label around it what it shows.
    head, close, rest = text.partition(">")
    return _SIZE.sub("", head).replace("<svg", '<svg aria-hidden="true"', 1) + close + rest


def days_below(axes: Axes, days: list[str]) -> None:
    """Days as the ticks of the axis, as many as are readable."""
    step = max(-(-len(days) // 15), 1)
    ticks = list(range(len(days) - 1, -1, -step))[::-1]
    axes.set_xticks(ticks, [days[tick] for tick in ticks])
    axes.set_xlim(-0.6, len(days) - 0.4)
