"""Statistics as a picture: lengths, fill, composition of what is computed, and what compression does not reach."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from v4model.data.stats import LAYOUT_NAMES, PackStats
from v4model.errors import DataError

_SUPERVISED, _PROMPT, _PADDING = "#1b6ca8", "#8ec1e0", "#dddddd"


def save_picture(stats: Sequence[PackStats], path: Path, *, title: str) -> None:
    """Writes a picture in the format of the file's ending (png, svg, pdf). Raises DataError."""
    figure = Figure(figsize=(11, 8), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(2, 2)
    _lengths(axes[0, 0], stats[0])
    _fills(axes[0, 1], stats)
    _composition(axes[1, 0], stats)
    _without_window(axes[1, 1], stats)
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        expected = "a file that can be written, such as stats.png or stats.svg"
        raise DataError(got=f"a picture that cannot be saved ({error})", expected=expected, where=str(path)) from error


def _lengths(axes: Axes, one: PackStats) -> None:
    names = [f"{bucket.shortest:,}-" for bucket in one.lengths]
    samples = sum(bucket.samples for bucket in one.lengths)
    places = range(len(names))
    shares = (
        [bucket.samples / samples for bucket in one.lengths],
        [bucket.tokens / one.real_tokens for bucket in one.lengths],
    )
    kinds = ((-0.2, "samples", _SUPERVISED), (0.2, "tokens", _PROMPT))
    for share, (shift, name, colour) in zip(shares, kinds, strict=True):
        axes.bar([place + shift for place in places], [100 * part for part in share], 0.4, label=name, color=colour)
    axes.set_xticks(places, names)
    axes.set(title="Lengths", xlabel="tokens of a sample, from", ylabel="share, %")
    axes.legend()


def _fills(axes: Axes, stats: Sequence[PackStats]) -> None:
    for one in stats:
        share = [100 * (number + 1) / one.packs for number in range(one.packs)]
        axes.plot(share, [100 * fill for fill in one.fills], ".-", label=f"{one.window:,}: {one.packs:,} packs")
    axes.set(title="Fill of packs", xlabel="pack, % of all", ylabel="fill, % of the window", ylim=(0, 103))
    axes.legend(title="window")


def _composition(axes: Axes, stats: Sequence[PackStats]) -> None:
    bars = [(one, layout) for one in reversed(stats) for layout in reversed(one.layouts)]
    names = [f"{LAYOUT_NAMES[layout.mode]} {one.window:,}" for one, layout in bars]
    supervised = [100 * layout.supervised_share for _, layout in bars]
    real = [100 * layout.real_share for _, layout in bars]
    prompt = [100 * (layout.real_share - layout.supervised_share) for _, layout in bars]
    padding = [100 * (1 - layout.real_share) for _, layout in bars]
    axes.barh(names, supervised, color=_SUPERVISED, label="supervised")
    axes.barh(names, prompt, left=supervised, color=_PROMPT, label="other real")
    axes.barh(names, padding, left=real, color=_PADDING, label="padding")
    axes.set(title="What is computed", xlabel="share of tokens, %", xlim=(0, 100))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3)


def _without_window(axes: Axes, stats: Sequence[PackStats]) -> None:
    groups = [(one, found) for one in stats for found in one.without_window]
    names = [f"ratio {found.ratio}\nin {one.window:,}" for one, found in groups]
    kinds = {
        "packs": [found.packs / one.packs for one, found in groups],
        "samples": [found.samples / sum(one.samples_per_pack) for one, found in groups],
        "tokens outside": [found.tokens_outside / one.real_tokens for one, found in groups],
        "tokens without row": [found.tokens_without_row / one.real_tokens for one, found in groups],
    }
    for number, (kind, shares) in enumerate(kinds.items()):
        places = [place + 0.2 * (number - 1.5) for place in range(len(names))]
        axes.bar(places, [100 * share for share in shares], 0.2, label=kind)
    axes.set_xticks(range(len(names)), names)
    axes.set(title="Without a complete compression window", ylabel="share, %", ylim=(0, 100))
    axes.legend()
