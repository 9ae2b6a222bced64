"""Units in several processes, results as they come, and nothing left running whatever ends the run."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager

from harness.engine.decide import describe_error
from harness.engine.row import Unit
from harness.engine.unit import Work, search_unit, undecided_unit
from harness.report import UnitResult

_GRACE_SECONDS = 5.0

_shared: list[Work] = []
"""In a worker process: the run's work, put there by `_prepare`."""


def search_in_processes(
    work: Work, units: Sequence[Unit], *, jobs: int
) -> Iterator[tuple[Unit, tuple[UnitResult, ...]]]:
    """Search units in `jobs` fresh processes of one thread each; yields each unit as it finishes.

    A worker that dies leaves its unit, and those that had not begun, UNDECIDED. When the caller stops listening, by
    Ctrl-C too, the workers are ended.
    """
    others = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(
        max_workers=jobs,
        # A forked process would inherit torch's threads in whatever state they are.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_prepare,
        initargs=(work,),
    )
    complete = False
    try:
        with _interrupts_held_back():
            futures = {executor.submit(_search, unit): unit for unit in units}
        for future in as_completed(futures):
            unit = futures[future]
            try:
                yield unit, future.result()
            except (OSError, RuntimeError) as error:  # BrokenProcessPool is a RuntimeError
                yield unit, undecided_unit(unit, f"worker process lost: {describe_error(error)}")
        complete = True
    finally:
        if not complete:
            _end(set(multiprocessing.active_children()) - others)
        executor.shutdown(wait=complete, cancel_futures=True)


def _end(workers: set[multiprocessing.process.BaseProcess]) -> None:
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(_GRACE_SECONDS)
        if worker.is_alive():
            worker.kill()
            worker.join()


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Workers started in this block never see Ctrl-C, which a terminal sends to them as well; the parent ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prepare(work: Work) -> None:
    import torch

    _shared.append(work)
    torch.set_num_threads(1)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    # A parent that is killed cannot end its workers, and a pool's workers would wait for it forever.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _search(unit: Unit) -> tuple[UnitResult, ...]:
    return search_unit(_shared[0], unit)
