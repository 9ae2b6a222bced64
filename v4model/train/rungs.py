"""The memory ladder as a picture: what was measured, and what was predicted, by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from v4model.errors import DataError
from v4model.train.ladder import Rung
from v4model.train.work import Parts


def save_picture(rungs: Sequence[Rung], path: Path) -> None:
    """Writes a picture in the format of the file's ending (png, svg, pdf). Raises DataError."""
    figure = Figure(figsize=(10, 6), layout="constrained")
    axes = figure.subplots()
    places, below = np.arange(len(rungs)), np.zeros(len(rungs))
    for field in fields(Parts):
        heights = np.array([getattr(rung.parts, field.name) / 1e9 for rung in rungs])
        axes.bar(places, heights, bottom=below, width=0.6, label=field.name)
        below += heights
    measured = [np.nan if rung.measured is None else rung.measured / 1e9 for rung in rungs]
    axes.plot(places, measured, "k_", markersize=40, markeredgewidth=2, label="measured")
    if any(rung.left_out is not None for rung in rungs):
        left_out = [np.nan if rung.left_out is None else rung.left_out / 1e9 for rung in rungs]
        axes.plot(places, left_out, "k.", label="predicted by the other rungs")
    axes.set_xticks(places, [f"{rung.window:,}" for rung in rungs])
    axes.set(xlabel="window, tokens", ylabel="peak, GB", title="Peak memory of a training step")
    axes.legend()
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        expected = "a file that can be written, such as ladder.png or ladder.svg"
        raise DataError(got=f"a picture that cannot be saved ({error})", expected=expected, where=str(path)) from error
