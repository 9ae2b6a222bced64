"""A night of small stages in place of the real ones: `python -m suites.harness.conduct.fake_night nightly ...`.

Each step notes itself in the file `ran` of the folder it is called in. Where there is a pipe called `here`, the second
step of fuzz says through it that it is running, and goes on for ever. `codes.json` says what steps return other than 0.
"""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

from harness import cli, cli_nightly
from harness.conduct import stages as real
from harness.conduct.budget import Part
from harness.conduct.record import FAILED, PASSED, STOPPED, UNDECIDED, StageRecord
from harness.conduct.stages import Names
from harness.conduct.turns import Judged, Stage, Step

UNTIL_INTERRUPTED = """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    os.write(pipe, b"ready")
    signal.sigwait([signal.SIGINT])
    raise KeyboardInterrupt
""".strip()
"""Lines of a command with the other end of `pipe`. Ctrl-C just before pause() would be handled and then waited for."""
STEP = f"""
import json, os, pathlib, signal, sys
name, leaves = sys.argv[1:]
with open("ran", "a") as ran:
    ran.write(name + "\\n")
if name == "fuzz 1" and os.path.exists("here"):
    pipe = os.open("here", os.O_WRONLY)
    {UNTIL_INTERRUPTED}
codes = json.loads(pathlib.Path("codes.json").read_text()) if os.path.exists("codes.json") else {{}}
print("step", name)
if codes.get(name) != 9:
    pathlib.Path(leaves).touch()
sys.exit(codes.get(name, 0))
"""
REPORT = "import sys; print('report of', *sys.argv[1:])"


def fake_stages(folder: Path, *, seed: int, jobs: int, is_whole: bool, rows: Names, faults: Names) -> list[Stage]:
    """Suites of one step, fuzz and faults of three; nothing to bench."""
    assert (jobs, is_whole) == (1, False)
    assert callable(rows)
    assert callable(faults)
    return [
        stage(folder, "suites", steps=1, seed=seed),
        stage(folder, "fuzz", steps=3, seed=seed),
        stage(folder, "faults", steps=3, seed=seed),
        stage(folder, "bench", steps=0, missing="there is no benchmark"),
    ]


def is_gone(pipe: int) -> bool:
    """Whether every process that has the other end of a pipe ends within a minute."""
    return bool(select.select([pipe], [], [], 60)[0]) and os.read(pipe, 1) == b""


def stage(
    folder: Path, name: str, *, steps: int, seed: int = 0, missing: str = "", weight: float = 1, endless: bool = False
) -> Stage:
    """One of so many steps; it has failed if a step returned 1, and passed if none did."""

    def step(number: int) -> Step | None:
        if number >= steps and not endless:
            return None
        leaves = f"{name}/{number}"
        words = (sys.executable, "-c", STEP, f"{name} {number}", str(folder / leaves))
        return Step(command=words, leaves=(leaves,))

    def judge(record: StageRecord) -> Judged:
        verdict = FAILED if 1 in record.codes else PASSED if record.codes else UNDECIDED
        cut = ", cut" if record.status == STOPPED else ""
        return Judged(verdict=verdict, sentence=f"{len(record.codes)} steps of seed {seed}{cut}")

    return Stage(
        part=Part(name=name, weight=weight, least_s=1e-6), missing=missing, step=step, judge=judge, endless=endless
    )


if __name__ == "__main__":
    real.stages = fake_stages
    cli_nightly.REPORT = (sys.executable, "-c", REPORT)
    cli.main()
