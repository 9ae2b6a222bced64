"""Python environments of public models that cannot share the one that runs the harness.

Each is a list of pins, `environments/NAME.txt`, installed as it stands and without looking for more: it names every
package with its version, and a peer whose own requirements ask for more than it needs here is installed all the same.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.peers.known import KnownPeer

FOLDER = Path(".peers")
"""Where environments are made, from the folder that the harness runs in."""

_PINS = Path(__file__).parent / "environments"
_VERSION = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"


@dataclass(frozen=True)
class Environment:
    """A virtual environment with a name, which may not be there."""

    name: str
    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter, by the way that a shell would take: resolved, it would be another one."""
        return self.folder / self.name / "bin" / "python"

    @property
    def exists(self) -> bool:
        """Whether it was made."""
        return self.python.exists()

    @property
    def command(self) -> str:
        """What makes it."""
        elsewhere = "" if self.folder.name == FOLDER.name else f" --environments {self.folder}"
        return f"harness peers --make {self.name}{elsewhere}"

    def version(self, package: str) -> str | None:
        """The installed version of a distribution, None if it is not there."""
        return version_in(str(self.python), package) if self.exists else None


def version_in(python: str, package: str) -> str | None:
    """The version of a distribution in the environment of an interpreter, None if it is not there."""
    asked = subprocess.run(
        [python, "-c", _VERSION, package], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or None if asked.returncode == 0 else None


def versions_of(peer: KnownPeer, subject: str) -> dict[str, str]:
    """Of the peer's package and of torch, where a subject's name says that it runs."""
    python = subject.split(":")[1] if subject.startswith("worker:") else sys.executable
    return {name: found for name in (peer.package, "torch") if (found := version_in(python, name)) is not None}


def names() -> list[str]:
    """Those that can be made."""
    return sorted(path.stem for path in _PINS.glob("*.txt"))


def make(name: str, *, folder: Path, pip_flags: Sequence[str], python: str = sys.executable) -> Environment:
    """Make an environment anew; raises UsageError for an unknown one, or where pip fails (what it says is printed)."""
    if name not in names():
        raise UsageError(got=f"unknown environment {name!r}", expected=f"one of {', '.join(names())}", where="--make")
    environment = Environment(name, folder)
    pip = (str(environment.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
    steps = (
        (python, "-m", "venv", "--clear", str(folder / name)),
        (*pip, *pip_flags, "-r", str(_PINS / f"{name}.txt")),
    )
    for step in steps:
        if subprocess.run(step, stdin=subprocess.DEVNULL, check=False).returncode:
            raise UsageError(
                got=f"a failure of {' '.join(step[1:4])}", expected="an environment", where=f"--make {name}"
            )
    return environment
