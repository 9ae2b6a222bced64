"""Runs stages, each as a process of its own, and keeps what each says and how it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from v4model.errors import DataError
from v4model.recipes.one_host.stages import Stage

TIMED_OUT = 124
_GRACE_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a stage ended; code 124: it took longer than it might. last: the end of what it printed."""

    stage: Stage
    code: int
    seconds: float
    last: str = ""


def run_stage(stage: Stage, folder: Path, *, timeout_s: float) -> Ended:
    """Runs one stage to its end, whatever that is; its output goes to `folder`/name/output.txt, its end beside it."""
    own = folder / stage.name
    own.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    with (own / "output.txt").open("w", encoding="utf-8") as said:
        # A group of its own: torchrun's workers have to end with it.
        process = subprocess.Popen(stage.command, stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = TIMED_OUT
        finally:
            _end(process)
    lines = [line for line in (own / "output.txt").read_text(encoding="utf-8", errors="replace").splitlines() if line]
    ended = Ended(stage=stage, code=code, seconds=time.perf_counter() - began, last=lines[-1] if lines else "")
    (own / "stage.json").write_text(json.dumps(asdict(ended), indent=1), encoding="utf-8")
    return ended


def read_stages(folder: Path, names: Iterable[str]) -> list[Ended]:
    """How the named stages of a folder ended, in that order; those that never ran are left out.

    Raises:
        DataError: a file that is no stage's.
    """
    found = []
    for name in names:
        path = folder / name / "stage.json"
        if not path.exists():
            continue
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            found.append(Ended(**{**content, "stage": Stage.from_json(content["stage"])}))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(got=str(error), expected="how a stage ended", where=str(path)) from error
        if found[-1].stage.name != name:
            raise DataError(got=f"stage {found[-1].stage.name}", expected=name, where=str(path))
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends what the stage has left running, its children too.

    Asked first: torchrun ends its workers, which are in groups of their own, and would leave them behind if killed.
    """
    with suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
