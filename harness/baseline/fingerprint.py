"""Why a test failed, in words that stay the same while the reason does."""

from __future__ import annotations

import re

from harness.baseline.identity import printable

MOST_CHARACTERS = 160

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|#x1B\[[0-9;?]*[A-Za-z]")
_PHASE = re.compile(r'failed on (setup|teardown) with "(.*)', re.DOTALL)
_TYPE = re.compile(
    r"([A-Za-z_][\w.]*(?:Error|Exception|Warning|Exit|Interrupt|Failed|Failure|Timeout|Group|Found))\b:? ?"
)
_UUID = re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+\b")
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+)|\b[-+]?(?:nan|inf)\b")
# A list of numbers is as long as the counterexample made it; so is a replay token's row of sample lengths.
_NUMBERS = re.compile(r"#(?:[\s,;.:+x/-]*#)+")
_EXAMPLE = re.compile(r"\s*(?:Falsifying|Failing|Minimal|Explicit)\b.{0,20}\bexample\b.*", re.IGNORECASE | re.DOTALL)
_BLANK = re.compile(r"\s+")


def fingerprint(message: str, *, phase: str, kind: str = "") -> str:
    """`phase: type: first line`, with numbers, addresses, colours and counterexamples taken out.

    kind is the exception's type where the writer said it; pytest leaves it to the message.
    """
    line = first_line(message)
    if not kind and (found := _TYPE.match(line)):
        kind, line = found[1], line[found.end() :]
    elif not kind and line.startswith("assert"):
        kind = "AssertionError"
    else:
        line = line.removeprefix(f"{kind}: ")
    return ": ".join(part for part in (phase, kind.rpartition(".")[2], normal_line(line)) if part)


def normal_line(line: str) -> str:
    """A line without what changes from run to run."""
    line = _EXAMPLE.sub("", line)
    line = _NUMBER.sub("#", _ADDRESS.sub("#", _UUID.sub("#", line)))
    return _BLANK.sub(" ", _NUMBERS.sub("#", line)).strip()[:MOST_CHARACTERS]


def first_line(message: str) -> str:
    """The first line that says something, without colours and without pytest's `failed on setup with`."""
    message = printable(_COLOUR.sub("", message))
    if found := _PHASE.match(message):
        message = found[2].removesuffix('"')
    return next((line.strip() for line in message.splitlines() if line.strip()), "")
