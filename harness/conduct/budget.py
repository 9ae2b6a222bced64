"""How long a night may take, and how its stages share that."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import UsageError

_UNIT_S = {"s": 1, "m": 60, "h": 3600}
_LONGEST_S = 7 * 24 * 3600


def read_budget(text: str) -> float | None:
    """Seconds of "90s", "10m", "2h" or "1h30m"; None of "none". Raises UsageError."""
    if text == "none":
        return None
    parts = re.findall(r"(\d{1,6})([hms])", text)
    seconds = float(sum(int(number) * _UNIT_S[unit] for number, unit in parts))
    if "".join(map("".join, parts)) != text or not 0 < seconds <= _LONGEST_S:
        raise UsageError(
            got=repr(text), expected="a time up to a week such as 10m, 2h or 1h30m, or none", where="--budget"
        )
    return seconds


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a stage asks for: a weight among those that are still to come, and seconds below which it is of no use."""

    name: str
    weight: float
    least_s: float


def share_out(left_s: float, parts: Sequence[Part]) -> dict[str, float]:
    """Seconds by the stage's name, in proportion to the weights.

    One that would get less than it needs is left out, the one that lacks most first, and its time goes to the others.
    """
    asking = list(parts)
    while asking:
        whole = sum(part.weight for part in asking)
        shares = {part.name: max(left_s, 0.0) * part.weight / whole for part in asking}
        worst = min(asking, key=lambda part: shares[part.name] / part.least_s)
        if shares[worst.name] >= worst.least_s:
            return shares
        asking.remove(worst)
    return {}


def told(seconds: float) -> str:
    """A time as a person would say it: "45 s", "10 min", "2 h 5 min"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h{f' {rest} min' if rest else ''}" if hours else f"{minutes} min"
