"""Numbers and counts in words, the same in every section."""

from __future__ import annotations

import math


def count(number: int, one: str, many: str = "") -> str:
    """`1 flake`, `2 flakes`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def seconds(value: float) -> str:
    """A duration with about three digits: `12 ms`, `3.42 s`, `18 min`."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 100:
        return f"{value:.3g} s"
    return f"{value / 60:.3g} min" if value < 7200 else f"{value / 3600:.1f} h"


def share(value: float | None) -> str:
    """Error in units of its bound, short enough for a narrow cell: `0`, `4e-4`, `0.13`."""
    if value is None or math.isnan(value):
        return "-"
    if value == 0 or math.isinf(value):
        return "0" if value == 0 else "inf"
    return f"{value:.2g}" if value >= 0.01 else f"{value:.0e}".replace("e-0", "e-")


def size(value: float) -> str:
    """Bytes in binary units."""
    power = 0 if value <= 0 else min(int(math.log2(value) // 10), 4)
    return f"{value / 1024**power:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def signed(value: float, text: str) -> str:
    """A difference with its sign; `text` tells its size."""
    return "±0" if not value else f"{'+' if value > 0 else '-'}{text}"


def listed(names: list[str], *, show: int = 3) -> str:
    """The first names, and how many are left out."""
    rest = len(names) - show
    return ", ".join(names[:show]) + (f" and {rest:,} more" if rest > 0 else "")
