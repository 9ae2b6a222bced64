"""Ranks in one process: a thread each under a baton, one at a time and in rank order, so every run repeats its bits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

from v4model.exchange import Exchange, Request

Result = TypeVar("Result")


class RankError(RuntimeError):
    """Ranks that would wait for each other for ever, told by name instead."""


class _Stopped(BaseException):
    """Unwinds the ranks that wait when another has failed; not an Exception, so that no handler swallows it."""


class _Group:
    """What the threads share. Only the holder of the baton touches it."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.batons = [threading.Semaphore(0) for _ in range(ranks)]
        self.requests: list[list[Request]] = [[] for _ in range(ranks)]
        self.sends: dict[tuple[int, int], list[Tensor]] = {}
        self.finished = [False] * ranks
        self.error: BaseException | None = None

    def pass_on(self, rank: int) -> None:
        """Hands the baton to the next rank that still runs."""
        for step in range(1, self.ranks + 1):
            following = (rank + step) % self.ranks
            if not self.finished[following]:
                self.batons[following].release()
                return

    def wait(self, rank: int) -> None:
        self.batons[rank].acquire()
        if self.error is not None:
            raise _Stopped

    def fail(self, error: BaseException) -> None:
        """Keeps the first error and lets every waiting rank unwind."""
        self.error = self.error or error
        for baton in self.batons:
            baton.release()


class _BatonWire:
    def __init__(self, group: _Group, rank: int) -> None:
        self.group, self.rank, self.ranks = group, rank, group.ranks

    def swap(self, sends: Sequence[Tensor], *, receives: Sequence[int], request: Request) -> list[Tensor]:
        group, turn = self.group, len(self.group.requests[self.rank])
        self._check(request, turn)
        group.requests[self.rank].append(request)
        group.sends[turn, self.rank] = [part.detach() for part in sends]
        group.pass_on(self.rank)
        group.wait(self.rank)
        # The baton came round: every rank has posted this turn, or has ended without it.
        for rank in range(self.ranks):
            if (turn, rank) not in group.sends:
                raise RankError(f"rank {self.rank} waits in {request}, step {turn}, but rank {rank} has finished")
        parts = [group.sends[turn, rank][self.rank] for rank in range(self.ranks)]
        for rank, (part, rows) in enumerate(zip(parts, receives, strict=True)):
            if part.shape[0] != rows:
                raise RankError(
                    f"rank {self.rank} expects {rows} rows of rank {rank} in {request}, step {turn}, "
                    f"but it sends {part.shape[0]}"
                )
        if self.rank == self.ranks - 1:
            for rank in range(self.ranks):
                del group.sends[turn, rank]
        return parts

    def _check(self, request: Request, turn: int) -> None:
        for rank in range(self.ranks):
            others = self.group.requests[rank]
            if len(others) > turn and others[turn] != request:
                raise RankError(
                    f"rank {self.rank} asks for {request}, step {turn}, where rank {rank} asked for {others[turn]}"
                )
            if self.group.finished[rank] and len(others) <= turn:
                raise RankError(f"rank {self.rank} asks for {request}, step {turn}, but rank {rank} has finished")


def run_ranks(ranks: int, work: Callable[[Exchange], Result]) -> list[Result]:
    """Runs `work` on each of `ranks` ranks of one group and returns their results in rank order.

    Raises:
        RankError: ranks that ask for different things, or for each other when one has finished; this would be a hang
            among processes.
        Exception: what the first failing rank raised, with a note of the rank.
    """
    group = _Group(ranks)
    results: list[Result | None] = [None] * ranks
    threads = [
        threading.Thread(target=_run_rank, args=(group, rank, work, results), name=f"rank {rank}", daemon=True)
        for rank in range(ranks)
    ]
    for thread in threads:
        thread.start()
    group.batons[0].release()
    for thread in threads:
        thread.join()
    if group.error is not None:
        raise group.error
    return [result for result in results]  # type: ignore[misc]  # none is None without an error


def _run_rank(
    group: _Group, rank: int, work: Callable[[Exchange], Result], results: list[Result | None]
) -> None:
    try:
        group.wait(rank)
        results[rank] = work(Exchange(_BatonWire(group, rank)))
        group.finished[rank] = True
        group.pass_on(rank)
    except _Stopped:
        return
    except BaseException as error:
        error.add_note(f"on rank {rank} of {group.ranks}")
        group.finished[rank] = True
        group.fail(error)
