"""A run as a picture: losses, gradient norm, and tokens per second, over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from v4model.errors import DataError
from v4model.train.record import StepRecord

_COLOURS = ("#1b6ca8", "#d1773d", "#5a8f3c", "#8e5aa8")


def save_curve(records: Sequence[StepRecord], path: Path, *, title: str) -> None:
    """Writes a picture in the format of the file's ending (png, svg, pdf). Raises DataError."""
    figure = Figure(figsize=(11, 7), layout="constrained")
    figure.suptitle(title)
    losses, norms, speeds = figure.subplots(3, 1, sharex=True, height_ratios=(2, 1, 1))
    _losses(losses, records)
    steps = [record.step for record in records]
    norms.plot(steps, [record.grad_norm for record in records], ".-", color=_COLOURS[0])
    norms.set(ylabel="gradient norm")
    seconds = [record.seconds for record in records]
    for counts, name, colour in (
        ([record.real_tokens for record in records], "real", _COLOURS[0]),
        ([record.supervised_tokens for record in records], "supervised", _COLOURS[1]),
    ):
        rates = [count / time for count, time in zip(counts, seconds, strict=True)]
        speeds.plot(steps, rates, ".-", label=name, color=colour)
    speeds.set(ylabel="tokens/s", xlabel="step", ylim=(0, None))
    speeds.xaxis.set_major_locator(MaxNLocator(integer=True))
    speeds.legend()
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        expected = "a file that can be written, such as curve.png or curve.svg"
        raise DataError(got=f"a picture that cannot be saved ({error})", expected=expected, where=str(path)) from error


def _losses(axes: Axes, records: Sequence[StepRecord]) -> None:
    steps = [record.step for record in records]
    axes.plot(steps, [record.main for record in records], ".-", label="main", color=_COLOURS[0])
    depths = len(records[0].mtp) if records else 0
    for depth in range(depths):
        values = [record.mtp[depth] for record in records]
        axes.plot(steps, values, ".-", label=f"MTP {depth + 1}", color=_COLOURS[1 + depth % (len(_COLOURS) - 1)])
    axes.set(ylabel="loss, nats a label")
    axes.legend()
