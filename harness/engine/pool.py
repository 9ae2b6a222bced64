"""Work in several processes, results as they come, and nothing left running whatever ends the run."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from harness.engine.decide import describe_error
from harness.engine.unit import Work

Item = TypeVar("Item")
Result = TypeVar("Result")

_GRACE_SECONDS = 5.0
_LOOK_SECONDS = 0.2
"""How long Ctrl-C may go unseen."""

_shared: list[Work] = []
"""In a worker process: the run's work, put there by `_prepare`."""


def in_processes(
    function: Callable[[Work, Item], Result],
    work: Work,
    items: Sequence[Item],
    *,
    jobs: int,
    lost: Callable[[Item, str], Result],
) -> Iterator[tuple[Item, Result]]:
    """function(work, item) of every item in `jobs` fresh processes of one thread each; yields each as it finishes.

    A worker that dies leaves its item, and those that had not begun, to `lost(item, reason)`. When the caller stops
    listening, by Ctrl-C too, the workers are ended.
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
            futures = {executor.submit(_call, function, item): item for item in items}
        with _interrupts_noted() as noted:
            pending = set(futures)
            while pending:
                finished, pending = wait(pending, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
                if noted:
                    raise KeyboardInterrupt
                for future in finished:
                    item = futures[future]
                    try:
                        result = future.result()
                    except (OSError, RuntimeError) as error:  # BrokenProcessPool is a RuntimeError
                        result = lost(item, f"worker process lost: {describe_error(error)}")
                    yield item, result
        complete = True
    finally:
        if not complete:
            _end(set(multiprocessing.active_children()) - others)
        executor.shutdown(wait=complete, cancel_futures=True)


def in_this_process(
    function: Callable[[Work, Item], Result], work: Work, items: Sequence[Item]
) -> Iterator[tuple[Item, Result]]:
    """function(work, item) of one item after another, on one thread; yields each as it finishes."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for item in items:
            yield item, function(work, item)
    finally:
        torch.set_num_threads(threads)


def in_jobs(
    function: Callable[[Work, Item], Result],
    work: Work,
    items: Sequence[Item],
    *,
    jobs: int,
    lost: Callable[[Item, str], Result],
) -> Iterator[tuple[Item, Result]]:
    """`in_processes`, or `in_this_process` where one job is all there is to do at a time."""
    jobs = max(1, min(jobs, len(items)))
    if jobs == 1:
        return in_this_process(function, work, items)
    return in_processes(function, work, items, jobs=jobs, lost=lost)


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


@contextmanager
def _interrupts_noted() -> Iterator[list[int]]:
    """Ctrl-C is noted in the list and raises nothing: inside the executor it could leave a lock held for ever."""
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    before = signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


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


def _call(function: Callable[[Work, Item], Result], item: Item) -> Result:
    return function(_shared[0], item)
