"""A warm pool of rank processes over gloo or NCCL: started once, asked often, gone with their parent.

Starting ranks costs seconds each time (a Python, torch and a rendezvous), so a pool serves all cases of a process. What
ranks run are plain functions found by import; what they keep between calls (models, graphs) stays in them.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from v4model.exchange import RankError

TIMEOUT_SECONDS = 60.0
"""How long a rank waits for others before it gives up; a layout that would hang ends in an error within this time."""
DEVICES = {"gloo": "cpu", "nccl": "cuda"}
"""By backend, what ranks compute on: over NCCL each has the GPU of its own number for its current one."""
_PRELOADED = ("torch.distributed", "harness.subjects.v4model_ranks")
_GRACE_SECONDS = 2.0
"""After one rank has given up on the others, how long the parent waits for the rank that is to blame."""


class RankFailure(RuntimeError):
    """A rank raised, or died; names the rank and quotes the first real error, not its echo on other ranks."""


class RankPool:
    """`world` processes in one group. Not to be shared among threads.

    Args:
        backend: a name of `DEVICES`.
        with_children: whether what ranks run may start processes of its own; such ranks are asked to end before they
            are killed, so that none of those is left behind.
    """

    def __init__(
        self,
        world: int,
        *,
        backend: str = "gloo",
        timeout_seconds: float = TIMEOUT_SECONDS,
        with_children: bool = False,
    ) -> None:
        self.world, self._with_children = world, with_children
        # A fork after torch has started threads hangs, and a spawned process spends seconds on imports. So ranks are
        # forked from a process that has imported everything and computed nothing.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, *_PRELOADED])
        self._folder = tempfile.TemporaryDirectory(prefix="ranks-")
        rendezvous = Path(self._folder.name, "rendezvous")
        self._connections: list[Connection] = []
        self._processes = []
        for rank in range(world):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve,
                args=(rank, world, backend, str(rendezvous), theirs, timeout_seconds),
                daemon=not with_children,
            )
            process.start()
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)

    @property
    def alive(self) -> bool:
        return bool(self._processes) and all(process.is_alive() for process in self._processes)

    def call(self, function: Callable[..., Any], per_rank: Sequence[tuple[Any, ...]]) -> list[Any]:
        """function(*per_rank[r]) on every rank r at once, results in rank order. After a failure the pool is closed.

        Raises:
            RankFailure: a rank raised or died.
            RankError: ranks disagreed, or one waited for others for longer than the pool's timeout.
        """
        for connection, arguments in zip(self._connections, per_rank, strict=True):
            connection.send_bytes(pickle.dumps((function, arguments)))
        answers: dict[int, Any] = {}
        errors: dict[int, _Failure] = {}
        while len(answers) + len(errors) < self.world:
            pending = [c for rank, c in enumerate(self._connections) if rank not in answers and rank not in errors]
            # Once a rank has failed, others hang or echo it; they get a moment to tell what they know.
            ready = wait(pending, timeout=_GRACE_SECONDS if errors else None)
            for rank in [rank for rank, connection in enumerate(self._connections) if connection in ready]:
                answer = self._receive(rank)
                (errors if isinstance(answer, _Failure) else answers)[rank] = answer
            if errors and (not ready or not all(failure.is_echo for failure in errors.values())):
                break
        if errors:
            self.close()
            raise _first_real(errors)
        return [answers[rank] for rank in range(self.world)]

    def close(self) -> None:
        """Ends the processes, whatever they do."""
        if self._with_children:
            for connection in self._connections:
                connection.close()
            for process in self._processes:
                process.join(_GRACE_SECONDS)
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
        for connection in self._connections:
            connection.close()
        self._processes, self._connections = [], []
        self._folder.cleanup()

    def _receive(self, rank: int) -> Any:
        try:
            return pickle.loads(self._connections[rank].recv_bytes())
        except EOFError:
            self._processes[rank].join()
            return _Failure("died", f"exit code {self._processes[rank].exitcode}", "", is_echo=False)


@cache
def _pools() -> dict[tuple[int, str], RankPool]:
    pools: dict[tuple[int, str], RankPool] = {}
    atexit.register(_close_all, pools)
    return pools


def _close_all(pools: dict[tuple[int, str], RankPool]) -> None:
    for pool in pools.values():
        pool.close()


def pool_of(world: int, *, backend: str = "gloo") -> RankPool:
    """The process's pool of that size, started when it is first asked for or when the last one has failed."""
    pools, key = _pools(), (world, backend)
    if key not in pools or not pools[key].alive:
        pools[key] = RankPool(world, backend=backend)
    return pools[key]


class _Failure:
    def __init__(self, kind: str, message: str, trace: str, *, is_echo: bool) -> None:
        self.kind, self.message, self.trace, self.is_echo = kind, message, trace, is_echo


def _first_real(errors: dict[int, _Failure]) -> Exception:
    rank = min(errors, key=lambda rank: (errors[rank].is_echo, rank))
    failure = errors[rank]
    if failure.kind == RankError.__name__:
        return RankError(failure.message)
    error = RankFailure(f"rank {rank}: {failure.kind}: {failure.message}")
    error.add_note(failure.trace)
    return error


def _serve(
    rank: int, world: int, backend: str, rendezvous: str, connection: Connection, timeout_seconds: float
) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    _end_with_parent()
    if DEVICES[backend] == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        backend,
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=timeout_seconds),
    )
    while True:
        try:
            function, arguments = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        try:
            answer = function(*arguments)
        except Exception as error:
            # Giving up on others is an echo of what happened to them.
            is_echo = isinstance(error, RankError) and error.__cause__ is not None
            answer = _Failure(type(error).__name__, str(error), traceback.format_exc(), is_echo=is_echo)
        connection.send_bytes(pickle.dumps(answer))


def _end_with_parent() -> None:
    """A rank that waits in a collective reads no pipe, so a thread watches for the parent's end, however it comes."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
