"""Share: which part of a model one rank holds."""

from __future__ import annotations

from dataclasses import dataclass

from v4model.config import V4Config
from v4model.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Share:
    """Pipeline stage `stage` of `stages` and expert rank `expert_rank` of `expert_ranks`; by default the whole model.

    The first stage embeds; the last collapses the streams and holds the LM head and MTP (with an embedding of its own
    for the tokens ahead).

    Raises:
        ConfigError: a number outside its range.
    """

    stage: int = 0
    stages: int = 1
    expert_rank: int = 0
    expert_ranks: int = 1

    def __post_init__(self) -> None:
        for name, number, count in (
            ("stage", self.stage, self.stages),
            ("expert_rank", self.expert_rank, self.expert_ranks),
        ):
            if not 0 <= number < count:
                raise ConfigError(got=f"{name} {number}", expected=f"0 to {count - 1}", where="Share")

    @property
    def is_first(self) -> bool:
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        return self.stage == self.stages - 1

    def layers(self, config: V4Config) -> range:
        """Trunk layers of this stage; the first stages take one more where they do not divide.

        Raises:
            ConfigError: fewer layers than stages.
        """
        num_layers = config.num_hidden_layers
        if num_layers < self.stages:
            raise ConfigError(got=f"{self.stages} stages", expected=f"at most {num_layers}, the trunk's layers")
        each, more = divmod(num_layers, self.stages)
        first = self.stage * each + min(self.stage, more)
        return range(first, first + each + (self.stage < more))

    def experts(self, num_experts: int) -> range:
        """Experts whose weights are held.

        Raises:
            ConfigError: experts that do not divide by the ranks.
        """
        if num_experts % self.expert_ranks:
            raise ConfigError(got=f"{self.expert_ranks} expert ranks", expected=f"a divisor of {num_experts} experts")
        run = num_experts // self.expert_ranks
        return range(self.expert_rank * run, (self.expert_rank + 1) * run)
