"""Runs one command for as long as somebody holds the other end of its input.

A night closes that end when a stage's time is over, and the system closes it when the night is killed, in whatever way.
The command is then ended as by Ctrl-C, which keeps what it has, and killed with all its processes if it goes on.

    python -m harness.conduct.child LOCK LOG GRACE_SECONDS COMMAND...

One command runs at a time under a lock: that of a night which was killed is over before the next one begins.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

GRACE_S = 30.0
"""How long a command may take to end: pytest's workers have ten seconds, pools of ranks five."""

BEAT_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended. code: what it returned, 128 and more for a signal. stopped: its time was over."""

    code: int
    stopped: bool
    seconds: float


def run_child(
    command: Sequence[str],
    *,
    lock: Path,
    log: Path,
    limit_s: float | None,
    beat: Callable[[float], None],
    grace_s: float = GRACE_S,
) -> Ended:
    """Run a command and call `beat` with its seconds now and then; whatever ends this function ends the command too."""
    began = time.monotonic()
    runner = [sys.executable, "-m", "harness.conduct.child", str(lock), str(log), str(grace_s), *command]
    # In a session of its own: Ctrl-C on the terminal reaches the night alone, which then ends the command.
    process = subprocess.Popen(runner, stdin=subprocess.PIPE, start_new_session=True)
    assert process.stdin is not None
    stopped = False
    try:
        while True:
            seconds = time.monotonic() - began
            beat(seconds)
            if limit_s is not None and seconds >= limit_s and not stopped:
                process.stdin.close()
                stopped = True
            left = BEAT_S if limit_s is None or stopped else min(BEAT_S, limit_s - seconds)
            with suppress(subprocess.TimeoutExpired):
                code = _shell_code(process.wait(max(left, 0.0)))
                return Ended(code=code, stopped=stopped, seconds=time.monotonic() - began)
    finally:
        process.stdin.close()
        process.wait()


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code, or 128 and the number of the signal that ended it."""
    lock, log, grace_s, *command = arguments
    # Whoever started the night in the background may have had Ctrl-C ignored, and its children would inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with FileLock(lock), Path(log).open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, process_group=0
        )
        threading.Thread(target=_end_with_input, args=(process, float(grace_s)), daemon=True).start()
        code = process.wait()
        _kill_group(process.pid)
    return _shell_code(code)


def _shell_code(code: int) -> int:
    return code if code >= 0 else 128 - code


def _end_with_input(process: subprocess.Popen[bytes], grace_s: float) -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    process.send_signal(signal.SIGINT)
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        _kill_group(process.pid)


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
