"""Ranks in one process: a thread each under a baton, one at a time and in rank order, so every run repeats its bits."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import Tensor

from v4model.exchange import Exchange, RankError, Ranks, Request, check_agreement
from v4model.parallel.groups import Member, Mesh

Result = TypeVar("Result")


class _Stopped(BaseException):
    """Unwinds the ranks that wait when another has failed; not an Exception, so that no handler swallows it."""


class _Board:
    """What the threads share; only the holder of the baton touches it."""

    def __init__(self, world: int) -> None:
        self.world = world
        self.batons = [threading.Semaphore(0) for _ in range(world)]
        self.posts: dict[Any, Any] = {}
        self.posted = 0
        self.waits: list[str | None] = [None] * world
        self.finished = [False] * world
        self.error: BaseException | None = None

    def post(self, key: Any, value: Any) -> None:
        self.posts[key] = value
        self.posted += 1

    def wait_for(self, keys: Sequence[Any], *, rank: int, what: str) -> None:
        """Lets the others run until all keys are posted.

        Raises:
            RankError: the baton came round and nobody had posted anything: all would wait for ever.
        """
        while not all(key in self.posts for key in keys):
            posted, self.waits[rank] = self.posted, what
            self.pass_on(rank)
            self.batons[rank].acquire()
            if self.error is not None:
                raise _Stopped
            if posted == self.posted and not all(key in self.posts for key in keys):
                others = (
                    f"rank {other} " + ("has finished" if self.finished[other] else f"waits in {self.waits[other]}")
                    for other in range(self.world)
                    if other != rank
                )
                raise RankError(f"rank {rank} waits in {what}, where {', '.join(others)}")
        self.waits[rank] = None

    def pass_on(self, rank: int) -> None:
        """Hands the baton to the next rank that still runs."""
        for step in range(1, self.world + 1):
            following = (rank + step) % self.world
            if not self.finished[following]:
                self.batons[following].release()
                return

    def fail(self, error: BaseException) -> None:
        """Keeps the first error and lets every waiting rank unwind."""
        self.error = self.error or error
        for baton in self.batons:
            baton.release()


class _BatonWire:
    """One rank's end of one group."""

    def __init__(self, board: _Board, name: str, group: tuple[int, ...], world_rank: int) -> None:
        self.board, self.key, self.world_rank = board, (name, group), world_rank
        self.rank, self.ranks, self.turn = group.index(world_rank), len(group), 0

    def swap(self, sends: Sequence[Tensor], *, receives: Sequence[int], request: Request) -> list[Tensor]:
        self.turn += 1
        what = f"{request}, exchange {self.turn}"
        keys = [(self.key, self.turn, rank) for rank in range(self.ranks)]
        self.board.post(keys[self.rank], (request, [part.detach() for part in sends]))
        self.board.wait_for(keys, rank=self.world_rank, what=what)
        # Who has posted this turn has read the last one, so that one can go.
        self.board.posts.pop((self.key, self.turn - 1, self.rank), None)
        posts = [self.board.posts[key] for key in keys]
        for rank, (theirs, their_sends) in enumerate(posts):
            check_agreement(
                own=request, theirs=theirs, expected_rows=receives[rank], rows=their_sends[self.rank].shape[0],
                rank=self.rank, other=rank, turn=self.turn,
            )  # fmt: skip
        return [their_sends[self.rank] for _, their_sends in posts]


class _BatonPipe:
    """One rank's end of the pipeline: messages to and from the same place in other stages."""

    def __init__(self, board: _Board, mesh: Mesh, rank: int) -> None:
        self.board, self.mesh, self.rank = board, mesh, rank
        self.counts: Counter[tuple[int, int]] = Counter()

    def send(self, x: Tensor, *, to_stage: int) -> None:
        self.board.post(self._next_key(self.rank, self.mesh.peer(self.rank, stage=to_stage)), x.detach())

    def receive(self, like: Tensor, *, from_stage: int) -> Tensor:
        key = self._next_key(self.mesh.peer(self.rank, stage=from_stage), self.rank)
        self.board.wait_for([key], rank=self.rank, what=f"a message from stage {from_stage}")
        message: Tensor = self.board.posts.pop(key)
        if message.shape != like.shape:
            raise RankError(
                f"stage {from_stage} sends {list(message.shape)} where rank {self.rank} expects {list(like.shape)}"
            )
        return message

    def _next_key(self, source: int, target: int) -> tuple[str, int, int, int]:
        self.counts[source, target] += 1
        return "pipe", source, target, self.counts[source, target]


class InProcessWorld:
    """A world of simulated ranks that works whenever it is asked to: a forward pass now, its backward pass later."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh, self._board = mesh, _Board(mesh.world)
        self.members = [self._member(rank) for rank in range(mesh.world)]

    def run(self, work: Callable[[Member], Result]) -> list[Result]:
        """Runs `work` on every rank and returns their results in rank order. After an error the world is spent.

        Raises:
            RankError: ranks that ask for different things, or wait for each other for ever (a hang among processes).
            Exception: what the first failing rank raised, with a note of the rank.
        """
        board, results = self._board, dict[int, Result]()
        if board.error is not None:
            raise board.error
        board.finished = [False] * self.mesh.world
        threads = [
            threading.Thread(target=self._work, args=(member, work, results), name=f"rank {member.rank}", daemon=True)
            for member in self.members
        ]
        for thread in threads:
            thread.start()
        board.batons[0].release()
        for thread in threads:
            thread.join()
        if board.error is not None:
            raise board.error
        return [results[rank] for rank in range(self.mesh.world)]

    def _member(self, rank: int) -> Member:
        board, mesh = self._board, self.mesh
        cp = Exchange(_BatonWire(board, "cp", mesh.cp_group(rank), rank))
        ep = Exchange(_BatonWire(board, "ep", mesh.ep_group(rank), rank))
        return Member(rank, Ranks(cp, ep), _BatonPipe(board, mesh, rank))

    def _work(self, member: Member, work: Callable[[Member], Result], results: dict[int, Result]) -> None:
        board, rank = self._board, member.rank
        try:
            board.batons[rank].acquire()
            if board.error is not None:
                return
            results[rank] = work(member)
            board.finished[rank] = True
            board.pass_on(rank)
        except _Stopped:
            return
        except BaseException as error:
            error.add_note(f"on rank {rank} of {self.mesh.world}")
            board.finished[rank] = True
            board.fail(error)
