"""Scaling as a picture: speed and memory over the number of GPUs, and the two curves of one model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from v4model.recipes.one_host.read import Run

_COLOURS = ("#1b6ca8", "#d1773d", "#5a8f3c")


def save_picture(runs: Sequence[Run], path: Path, *, title: str) -> None:
    """Three panels, from the runs that got so far; what failed has no point."""
    figure = Figure(figsize=(13, 4.5), layout="constrained")
    figure.suptitle(title)
    speed, memory, losses = figure.subplots(1, 3)
    scaled = [run for run in runs if run.ended.stage.kind == "scaling" and run.tokens_a_second]
    _speed(speed, scaled)
    measured = [(run.training.gpus, run.peak_bytes / 1e9) for run in scaled if run.peak_bytes is not None]
    memory.bar([str(gpus) for gpus, _ in measured], [peak for _, peak in measured], color=_COLOURS[0], width=0.5)
    memory.set(xlabel="GPUs", ylabel="peak of the fullest, GB", ylim=(0, None if measured else 1))
    for number, run in enumerate(run for run in runs if run.ended.stage.kind == "curve" and run.records):
        steps = [record.step for record in run.records]
        label = f"{run.training.window:,} x {run.training.packs}"
        colour = _COLOURS[number % len(_COLOURS)]
        losses.plot(steps, [record.main for record in run.records], ".-", color=colour, label=f"main, {label}")
        if run.records[0].mtp:
            losses.plot(steps, [record.mtp[0] for record in run.records], ".--", color=colour, label=f"MTP 1, {label}")
    losses.set(xlabel="step", ylabel="loss, nats a label")
    losses.xaxis.set_major_locator(MaxNLocator(integer=True))
    if losses.lines:
        losses.legend()
    figure.savefig(path, dpi=120)


def _speed(axes: Axes, runs: Sequence[Run]) -> None:
    sizes, speeds = [run.training.gpus for run in runs], [run.tokens_a_second or 0.0 for run in runs]
    axes.plot(sizes, speeds, "o-", color=_COLOURS[0], label="measured")
    if sizes:
        axes.plot(sizes, [speeds[0] * size / sizes[0] for size in sizes], ":", color="grey", label="in proportion")
        axes.legend()
    axes.set(xlabel="GPUs", ylabel="real tokens/s", xlim=(0, None), ylim=(0, None), xticks=sizes)
