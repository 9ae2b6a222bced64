"""The configuration a baseline holds for: runs under another one are not comparable."""

from __future__ import annotations

import re
from collections.abc import Mapping

from harness.errors import UsageError

FIELDS = ("device", "dtype", "torch", "python", "megatron-core", "profile", "gates")
"""The facts that decide; a run may say more of itself, such as its seed."""

_PREFIXES = {"torch": "torch", "python": "python", "megatron-core": "mcore"}
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._+-]+")


def key_of(facts: Mapping[str, str] | None) -> str | None:
    """The folder's name for these facts, such as `cpu-float64-torch2.13.0-python3.11-mcore0.16.1-quick`.

    None when the run says nothing of its configuration. Gates are named only where some are open.
    """
    parts = [
        _PREFIXES.get(field, "") + facts[field]
        for field in FIELDS
        if facts is not None and facts.get(field) and (field, facts[field]) != ("gates", "none")
    ]
    return _NOT_PLAIN.sub("_", "-".join(parts)) or None


def checked_key(name: str) -> str:
    """A key that a caller chose, as a folder's name.

    Raises UsageError if it is none.
    """
    if not name or name.startswith(".") or _NOT_PLAIN.search(name):
        raise UsageError(got=f"--key {name!r}", expected="letters, digits and . _ + -", where="key of a baseline")
    return name


def differences(base: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """The deciding facts in which two runs differ, as `torch 2.13.0, was 2.11.0`."""
    return [
        f"{field} {new.get(field) or 'not said'}, was {base.get(field) or 'not said'}"
        for field in FIELDS
        if new.get(field) != base.get(field)
    ]
