"""A command ends softly when its time is over, hard when it does not, and with whoever wanted it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from harness.conduct.child import Ended, run_child
from suites.harness.conduct.fake_night import UNTIL_INTERRUPTED, is_gone
from suites.repo import tree

# Each of these says that it is ready through a pipe, and the pipe ends when the last process that has it is gone.
WAITS = f"""
import os, pathlib, signal, sys
pipe = os.open("here", os.O_WRONLY)
try:
    {UNTIL_INTERRUPTED}
except KeyboardInterrupt:
    pathlib.Path("kept").touch()
    sys.exit(3)
"""
DEAF = """
import os, signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
pipe = os.open("here", os.O_WRONLY)
os.set_inheritable(pipe, True)
child = "import os, signal; os.write(%d, b'ready'); signal.pause()" % pipe
subprocess.run([sys.executable, "-c", child], close_fds=False)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tree.ROOT))
    os.mkfifo("here")
    return tmp_path / "here"


def ready(pipe: Path, opened: list[int]) -> Callable[[float], None]:
    """A beat that waits, at its first call, until the command is ready."""

    def beat(_: float) -> None:
        if not opened:
            opened.append(os.open(pipe, os.O_RDONLY))
            assert os.read(opened[0], 5) == b"ready"

    return beat


def ran(script: str, *, limit_s: float | None, beat: Callable[[float], None], grace_s: float = 60) -> Ended:
    return run_child(
        [sys.executable, "-c", script], lock=Path("lock"), log=Path("log"), limit_s=limit_s, beat=beat, grace_s=grace_s
    )


def test_a_command_that_ends_by_itself(here: Path) -> None:
    ended = ran("print('said'); raise SystemExit(3)", limit_s=None, beat=lambda _: None)
    assert (ended.code, ended.stopped) == (3, False)
    assert here.with_name("log").read_text(encoding="utf-8") == "said\n"


def test_a_command_that_dies_of_a_signal(here: Path) -> None:
    assert here.exists()
    code = "import os; os.kill(os.getpid(), 9)"
    assert ran(code, limit_s=None, beat=lambda _: None).code == 128 + signal.SIGKILL


def test_when_the_time_is_over_a_command_may_keep_what_it_has(here: Path) -> None:
    ended = ran(WAITS, limit_s=0, beat=ready(here, []))
    assert (ended.code, ended.stopped) == (3, True)
    assert here.with_name("kept").exists()


def test_one_that_does_not_end_is_killed_with_its_processes(here: Path) -> None:
    opened: list[int] = []
    ended = ran(DEAF, limit_s=0, beat=ready(here, opened), grace_s=0.1)
    assert (ended.code, ended.stopped) == (128 + signal.SIGKILL, True)
    assert is_gone(opened[0]), "a process of the command is still there"


def test_what_ends_the_caller_ends_the_command(here: Path) -> None:
    opened: list[int] = []

    def interrupted(seconds: float) -> None:
        ready(here, opened)(seconds)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ran(WAITS, limit_s=None, beat=interrupted)
    assert is_gone(opened[0])
    assert here.with_name("kept").exists()


def test_a_caller_that_is_killed_takes_the_command_along(here: Path) -> None:
    caller = (
        "import sys; from pathlib import Path; from harness.conduct.child import run_child\n"
        "run_child(sys.argv[1:], lock=Path('lock'), log=Path('log'), limit_s=None, beat=lambda _: None)"
    )
    process = subprocess.Popen([sys.executable, "-c", caller, sys.executable, "-c", WAITS], start_new_session=True)
    with here.open("rb", buffering=0) as pipe:
        assert pipe.read(5) == b"ready"
        with pytest.raises(Timeout):
            FileLock("lock", timeout=0).acquire()
        os.killpg(process.pid, signal.SIGKILL)
        assert is_gone(pipe.fileno())
    process.wait()
    with FileLock("lock", timeout=60):
        pass
    assert here.with_name("kept").exists()
