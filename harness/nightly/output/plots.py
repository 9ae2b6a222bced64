"""The plots of the page, each as inline SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from matplotlib.ticker import FuncFormatter, MaxNLocator

from harness.nightly.output.svg import COLOURS, SERIES, days_below, figure, to_svg
from harness.nightly.wording import size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Numbers = npt.NDArray[Any]

_MOST_NAMED = 3
"""Nights left out that are named in the plot; more are only shaded."""
_MOST_COUNTED = 20
"""Nights beside which there is room for a number each."""


def outcome_trend(
    *, days: list[str], left_out: Mapping[int, str], red: Numbers, new: Numbers, idle: Numbers, tests: Numbers
) -> str:
    """Red (new: not on the night before) and skipped tests by night, and all tests; nights left out are hatched."""
    with figure(3.8) as drawn:
        above, below = drawn.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        counted = np.array([night not in left_out for night in range(len(days))])
        edges = np.arange(len(days) + 1) - 0.5
        lower = np.zeros(len(days))
        layers = (("newly red", "bad", 1.0, new), ("still red", "bad", 0.4, red - new), ("skipped", "quiet", 0.4, idle))
        for label, colour, alpha, values in layers:
            upper = lower + np.where(counted, values, 0)
            above.stairs(
                upper,
                edges,
                baseline=lower,
                fill=True,
                facecolor=COLOURS[colour],
                alpha=alpha,
                linewidth=0,
                label=label,
            )
            lower = upper
        above.set_ylim(0, max(float(lower.max(initial=0)) * 1.15, 1))
        above.set_title("Tests that did not pass")
        above.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, borderaxespad=0)
        if len(days) <= _MOST_COUNTED:
            for night in np.flatnonzero(counted):
                above.text(night, lower[night], f"{red[night]:,} red", ha="center", va="bottom", fontsize=8)
        below.stairs(np.where(counted, tests, np.nan), edges, baseline=None, color=COLOURS["one"], linewidth=1.5)
        below.set_title("All tests")
        for axes in (above, below):
            _shade(axes, left_out, named=axes is above)
            axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.grid(visible=True, axis="y")
            axes.set_axisbelow(True)
        days_below(below, days)
        return to_svg(drawn, "outcomes-plot")


def duration_trend(*, days: list[str], left_out: Mapping[int, str], seconds: Numbers) -> str:
    """Seconds of all tests together by night."""
    with figure(1.9) as drawn:
        axes = drawn.subplots()
        told = np.array([np.nan if night in left_out else value for night, value in enumerate(seconds)])
        axes.plot(told, color=COLOURS["one"], marker=_marker(days), markersize=3.5, linewidth=1.5)
        axes.set_ylim(0, max(float(np.nanmax(told, initial=0)) * 1.1, 1e-3))
        axes.set_title("Seconds of all tests together")
        axes.grid(visible=True, axis="y")
        axes.yaxis.set_major_locator(MaxNLocator(4))
        _shade(axes, left_out, named=False)
        days_below(axes, days)
        return to_svg(drawn, "durations-plot")


def drift(*, days: list[str], lines: Mapping[str, Sequence[float]]) -> str:
    """Errors in units of their bounds by night, on a logarithmic scale below the bound."""
    with figure(2.9 + 0.1 * len(lines)) as drawn:
        axes = drawn.subplots()
        for number, (name, values) in enumerate(lines.items()):
            told = np.array([value if value > 0 else np.nan for value in values])
            axes.plot(told, color=COLOURS[SERIES[number % len(SERIES)]], marker=_marker(days), markersize=3.5,
                      linewidth=1.5, label=name)  # fmt: skip
        axes.axhline(1, color=COLOURS["bad"], linewidth=1, linestyle=(0, (4, 2)))
        axes.annotate("the bound", (0.005, 1), xycoords=("axes fraction", "data"), xytext=(0, -4),
                      textcoords="offset points", va="top", color=COLOURS["bad"])  # fmt: skip
        axes.set_yscale("log")
        axes.set_title("Error in units of its bound")
        axes.grid(visible=True, axis="y")
        axes.legend(loc="upper right", bbox_to_anchor=(1, -0.12), ncols=2 if len(lines) > 1 else 1)
        days_below(axes, days)
        return to_svg(drawn, "drift-plot")


def memory_ladder(ladder: Sequence[Mapping[str, Any]]) -> str:
    """Peak memory by window, measured and predicted."""
    with figure(2.6) as drawn:
        axes = drawn.subplots()
        rungs = sorted(ladder, key=lambda rung: rung["window"])
        windows = [rung["window"] for rung in rungs]
        predicted = [rung["predicted_bytes"] or np.nan for rung in rungs]
        axes.plot(windows, predicted, color=COLOURS["quiet"], linestyle=(0, (4, 2)), label="predicted")
        axes.plot(windows, [rung["peak_bytes"] for rung in rungs], color=COLOURS["one"], marker="o", label="measured")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(windows, [f"{window:,}" for window in windows])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: size(value)))
        axes.set_title("Peak memory by window in tokens")
        axes.grid(visible=True, axis="y")
        axes.legend(loc="upper left")
        return to_svg(drawn, "ladder-plot")


def _shade(axes: Axes, left_out: Mapping[int, str], *, named: bool) -> None:
    for night, why in left_out.items():
        axes.axvspan(night - 0.5, night + 0.5, facecolor="none", edgecolor=COLOURS["line"], hatch="////", linewidth=0)
        if named and len(left_out) <= _MOST_NAMED:
            axes.annotate(why, (night, 0.97), xycoords=("data", "axes fraction"), rotation=90, ha="center", va="top",
                          fontsize=8, color=COLOURS["quiet"])  # fmt: skip


def _marker(days: list[str]) -> str:
    return "o" if len(days) <= 60 else ""
