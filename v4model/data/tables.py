"""Statistics and packs on a terminal, readable at 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from v4model.data.inspect import PackView, TokenRow
from v4model.data.stats import LAYOUT_NAMES, Bucket, PackStats

_BAR_CELLS = 32
_TEXT_CELLS = 16


def print_stats(console: Console, stats: Sequence[PackStats], *, heading: str) -> None:
    """One table a question, with the windows as rows."""
    _line(console, heading, style="dim")
    for build in (_packs, _tokens, _without_window, _layouts):
        console.print(build(stats))
    _line(console, "gain: computed tokens, padded / here; a prediction where time goes with tokens", style="dim")
    for one in stats:
        _line(console, _losses(one))
    shown: list[tuple[Bucket, ...]] = []
    for one in stats:
        if one.lengths not in shown:
            shown.append(one.lengths)
            console.print(_lengths(one))


def _packs(stats: Sequence[PackStats]) -> Table:
    table = _table("Packs", "window", "packs", "least", "fill, all but last", "last", "samples a pack")
    for one in stats:
        fullest = f">= {min(one.fills[:-1]):.2%}" if one.packs > 1 else "-"
        counts = sorted(one.samples_per_pack)
        spread = f"{counts[0]:,} to {counts[-1]:,}, median {counts[len(counts) // 2]:,}"
        table.add_row(
            f"{one.window:,}", f"{one.packs:,}", f"{one.least_packs:,}", fullest, f"{one.fills[-1]:.1%}", spread
        )
    return table


def _tokens(stats: Sequence[PackStats]) -> Table:
    table = _table("Tokens", "window", "computed", "real", "supervised", "aligning", "padding")
    for one in stats:
        parts = (one.real_tokens, one.supervised_tokens, one.alignment_tokens, one.padding_tokens)
        cells = (f"{part:,} {part / one.total_tokens:6.1%}" for part in parts)
        table.add_row(f"{one.window:,}", f"{one.total_tokens:,}", *cells)
    return table


def _without_window(stats: Sequence[PackStats]) -> Table:
    columns = ("window", "ratio", "packs", "samples", "tokens outside", "tokens without row")
    table = _table("Without a complete compression window", *columns)
    for one in stats:
        samples = sum(one.samples_per_pack)
        for found in one.without_window:
            shares = (
                found.packs / one.packs,
                found.samples / samples,
                found.tokens_outside / one.real_tokens,
                found.tokens_without_row / one.real_tokens,
            )
            table.add_row(f"{one.window:,}", f"{found.ratio}", *(f"{share:.1%}" for share in shares))
    return table


def _layouts(stats: Sequence[PackStats]) -> Table:
    columns = ("window", "layout", "rows", "computed", "real", "superv.", "real in budget", "gain")
    table = _table("The same corpus padded and packed", *columns)
    for one in stats:
        for layout in one.layouts:
            table.add_row(
                f"{one.window:,}",
                LAYOUT_NAMES[layout.mode],
                f"{layout.rows:,}",
                f"{layout.total_tokens:,}",
                f"{layout.real_share:.1%}",
                f"{layout.supervised_share:.1%}",
                f"{layout.real_tokens_in_budget:,}",
                f"{layout.predicted_gain:.1f}x",
            )
        table.add_section()
    return table


def _losses(one: PackStats) -> str:
    lost, said = one.losses, []
    if lost.truncated_samples:
        said.append(
            f"truncated {lost.truncated_samples:,} samples by {lost.truncated_tokens:,} tokens "
            f"({lost.truncated_labels:,} labels)"
        )
    if lost.split_samples:
        said.append(f"split {lost.split_samples:,} samples ({lost.split_labels:,} labels lost at the cuts)")
    if lost.dropped_samples:
        said.append(
            f"dropped {lost.dropped_samples:,} samples in which nothing is learned ({lost.dropped_tokens:,} tokens)"
        )
    return f"Window {one.window:,}: {'; '.join(said) or 'nothing truncated, split or dropped'}."


def _lengths(one: PackStats) -> Table:
    table = _table("Lengths", "tokens", "samples", "share of tokens", "", left=("",))
    most = max(bucket.samples for bucket in one.lengths)
    for bucket in one.lengths:
        table.add_row(
            f"{bucket.shortest:,} to {2 * bucket.shortest - 1:,}",
            f"{bucket.samples:,}",
            f"{bucket.tokens / one.real_tokens:.1%}",
            Text("█" * -(-bucket.samples * _BAR_CELLS // most), style="cyan"),
        )
    return table


def print_pack(console: Console, view: PackView) -> None:
    """A pack's tokens, boundaries, masks and labels side by side, a section a sample."""
    _line(console, view.heading, style="dim")
    console.print(_rows((), header=True))
    for part in view.parts:
        _line(console, part.title, style="bold")
        if part.rows:
            console.print(_rows(part.rows, header=False))


def _rows(rows: Sequence[TokenRow | None], *, header: bool) -> Table:
    # Fixed widths, so that the columns of all sections stand under one header.
    widths = {"token": 6, "pos": 6, "id": 6, "text": _TEXT_CELLS, "mask": 4, "label": 6, "next": _TEXT_CELLS}
    table = _table("", *widths, "learned", left=("text", "next"))
    for column, width in zip(table.columns, widths.values(), strict=False):
        column.min_width = width
    table.title, table.show_header = None, header
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: TokenRow | None) -> tuple[str | Text, ...]:
    if row is None:
        return ("...",)
    label = "-" if row.label is None else f"{row.label}"
    mask, learned = "yes" if row.supervised else "-", "yes" if row.learned else "-"
    return (
        f"{row.token}",
        f"{row.position}",
        f"{row.id}",
        _short(row.text),
        mask,
        label,
        _short(row.label_text),
        learned,
    )


def _short(text: str) -> Text:
    # Spaces and control signs are content here, and a table would swallow them.
    shown = Text(repr(text)[1:-1].replace(" ", "·"))
    shown.truncate(_TEXT_CELLS, overflow="ellipsis")
    return shown


def _table(title: str, *columns: str, left: tuple[str, ...] = ("layout",)) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0), title_style="bold")
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=name != "samples a pack")
    return table


def _line(console: Console, text: str, *, style: str = "") -> None:
    console.print(text, style=style, highlight=False, markup=False)
