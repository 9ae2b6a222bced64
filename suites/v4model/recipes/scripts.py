"""Runs recipes with an environment that holds nothing else, and reads what they print."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import v4model.recipes

FOLDER = Path(v4model.recipes.__file__).parent
BASE = "run_full_4k_multinode.sh"


@dataclass(frozen=True)
class Done:
    """How a recipe ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def settings(self) -> dict[str, str]:
        """What a dry run resolved."""
        return dict(line.split("=", 1) for line in self.out.partition("\n\n")[0].splitlines())

    @property
    def command(self) -> list[str]:
        """What a dry run would have run."""
        return shlex.split(self.out.partition("\n\n")[2])

    @property
    def options(self) -> dict[str, list[str]]:
        """The command's options and the words behind each."""
        found: dict[str, list[str]] = {}
        last = ""
        for word in self.command:
            last = word if word.startswith("--") else last
            found.setdefault(last, []).append(word)
        return found


def run(recipe: str, *words: str, environment: Mapping[str, str] | None = None, python: str = sys.executable) -> Done:
    """As under `env -i`: PATH and HOME, which interpreter, and what the caller adds."""
    base = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "V4_PYTHON": python}
    done = subprocess.run(
        [FOLDER / recipe, *words],
        env=base | dict(environment or {}),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def fake_python(path: Path, answers: Mapping[str, str]) -> str:
    """An interpreter that answers the probe and prints any other command, a word a line."""
    lines = "\n".join(f"{name}={answer}" for name, answer in answers.items())
    path.write_text(
        "#!/usr/bin/env bash\n"
        f"if [[ $2 == v4model.recipes.probe ]]; then cat <<'END'\n{lines}\nEND\n"
        "else printf '%s\\n' \"$@\"; fi\n"
    )
    path.chmod(0o755)
    return str(path)
