"""Runs as they really looked: `runs/` by pytest and xdist (`make_runs.py` made it), `foreign/` by other writers."""

from __future__ import annotations

from pathlib import Path

RUNS = Path(__file__).with_name("runs")
FOREIGN = Path(__file__).with_name("foreign")


def junit(name: str) -> str:
    """The JUnit file of a run; it may not exist, as after a kill."""
    return str(RUNS / name / "junit.xml")


def lines(name: str) -> str:
    """The JSON lines of a run; they may not exist, as when pytest could not start."""
    return str(RUNS / name / "results.jsonl")


def status(name: str) -> int:
    """What pytest returned."""
    return int((RUNS / name / "status").read_text(encoding="utf-8"))


def foreign(name: str) -> str:
    """A file of another writer."""
    return str(FOREIGN / name)
