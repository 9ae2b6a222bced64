"""Which commit a folder is at."""

from __future__ import annotations

import subprocess
from pathlib import Path

DIRTY = "-dirty"


def commit_of(folder: Path) -> str:
    """The commit of the folder, marked by `DIRTY` when files differ from it; empty outside Git."""
    command = ["git", "-C", str(folder), "describe", "--always", f"--dirty={DIRTY}", "--abbrev=12", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
