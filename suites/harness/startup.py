"""What a command costs before it does anything, in processor time.

The clock on the wall also counts what else the machine is doing, and a number of seconds means another thing on another
machine: so it is compared with what importing torch takes on this one.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from functools import cache

SHARE = 0.25
"""Of an import of torch: help that imports it, or anything as heavy, takes more than the whole."""


def children_s(run: Callable[[], None]) -> float:
    """Processor time of the processes that `run` starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def assert_at_once(run: Callable[[], None]) -> None:
    """That `run` takes less than `SHARE` of an import of torch; the least of three, as a busy core adds to each."""
    seconds, bound = min(children_s(run) for _ in range(3)), SHARE * _torch_s()
    print(f"{seconds:.2f} s of processor time, at most {bound:.2f} s")
    assert seconds < bound


@cache
def _torch_s() -> float:
    def run() -> None:
        subprocess.run([sys.executable, "-c", "import torch"], check=True)

    return min(children_s(run) for _ in range(2))
