"""Mesh: how a world of ranks is cut into replicas, pipeline stages, context and expert groups. No process group."""

from __future__ import annotations

from dataclasses import dataclass

from v4model.errors import ConfigError
from v4model.exchange import Pipe, Ranks
from v4model.layers.share import Share


@dataclass(frozen=True, eq=False)
class Member:
    """One rank of a world: the groups it computes in, and a pipe to the stages before and behind."""

    rank: int
    ranks: Ranks
    pipe: Pipe


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """Sizes of the groups. World ranks run over cp fastest, then dp, then pp, as megatron-core orders them.

    Experts are spread over runs of `ep` neighbours among a stage's dp * cp ranks.

    Raises:
        ConfigError: a size below 1, or ep that does not divide dp * cp.
    """

    cp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1

    def __post_init__(self) -> None:
        for name, size in (("cp", self.cp), ("dp", self.dp), ("pp", self.pp), ("ep", self.ep)):
            if size < 1:
                raise ConfigError(got=f"{name} = {size}", expected="at least 1", where="Mesh")
        if (self.dp * self.cp) % self.ep:
            raise ConfigError(
                got=f"ep = {self.ep}", expected=f"a divisor of dp * cp = {self.dp * self.cp}", where="Mesh"
            )

    @property
    def stage_size(self) -> int:
        return self.dp * self.cp

    @property
    def world(self) -> int:
        return self.stage_size * self.pp

    def cp_group(self, rank: int) -> tuple[int, ...]:
        """World ranks that share a pack with `rank`."""
        first = rank - rank % self.cp
        return tuple(range(first, first + self.cp))

    def ep_group(self, rank: int) -> tuple[int, ...]:
        """World ranks that share the experts with `rank`."""
        first = rank - rank % self.stage_size % self.ep
        return tuple(range(first, first + self.ep))

    def stage_group(self, rank: int) -> tuple[int, ...]:
        """World ranks that hold the same layers as `rank`: gradients of all but the experts add up over these."""
        first = rank - rank % self.stage_size
        return tuple(range(first, first + self.stage_size))

    def expert_replicas(self, rank: int) -> tuple[int, ...]:
        """World ranks that hold the same experts as `rank`: their gradients add up over these."""
        group = self.stage_group(rank)
        return tuple(other for other in group if (other - rank) % self.ep == 0)

    def ends_group(self, rank: int) -> tuple[int, ...]:
        """The ranks of the first and the last stage at the same place as `rank`; in the middle, the rank alone."""
        if self.stage(rank) not in (0, self.pp - 1):
            return (rank,)
        return tuple(sorted({self.peer(rank, stage=0), self.peer(rank, stage=self.pp - 1)}))

    def peer(self, rank: int, *, stage: int) -> int:
        """The rank at the same place in another stage."""
        return rank % self.stage_size + stage * self.stage_size

    def replica(self, rank: int) -> int:
        """Which replica (which pack of a step) `rank` works on."""
        return rank % self.stage_size // self.cp

    def stage(self, rank: int) -> int:
        return rank // self.stage_size

    def share(self, rank: int) -> Share:
        """The part of the model that `rank` holds."""
        return Share(
            stage=self.stage(rank), stages=self.pp, expert_rank=rank % self.stage_size % self.ep, expert_ranks=self.ep
        )
