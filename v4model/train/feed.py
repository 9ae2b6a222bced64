"""Feed: which packs a step trains on, from the step's number alone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import torch

from v4model.config import V4Config
from v4model.data import PackedData
from v4model.pack import Pack
from v4model.pack.counts import StepCounts, counts_of


@dataclass(frozen=True, eq=False)
class StepPacks:
    """The packs of one step.

    own: of one replica, in the order it runs them. numbers: of all replicas, as `v4model data inspect --pack` counts.
    counts: over all replicas, what the step's sums are divided by. real_tokens and without_hca: over all replicas;
    packs in which no sample has a complete window of the model's largest ratio.
    """

    own: list[Pack]
    numbers: list[int]
    counts: StepCounts
    real_tokens: int
    without_hca: int


@dataclass(frozen=True, eq=False)
class Feed:
    """Packs for a model. Ids beyond a small vocabulary are folded into it (id % vocab_size)."""

    data: PackedData
    config: V4Config
    packs_per_step: int
    replicas: int = 1

    def step(self, step: int, *, replica: int = 0) -> StepPacks:
        """The packs of step `step`, counted from 0: the next `packs_per_step` of the data's order."""
        start = step * self.packs_per_step
        numbers = list(islice(self.data.order(start=start), self.packs_per_step))
        packs = [self.pack(number) for number in numbers]
        ratio = max(self.config.ratios, default=0)
        return StepPacks(
            own=packs[replica :: self.replicas],
            numbers=numbers,
            counts=counts_of(packs, depths=self.config.num_nextn_predict_layers),
            real_tokens=sum(pack.layout.real_tokens for pack in packs),
            without_hca=sum(bool(ratio) and max(pack.layout.lengths) < ratio for pack in packs),
        )

    def pack(self, number: int) -> Pack:
        """One pack, its ids in the model's vocabulary."""
        pack = self.data.pack(number)
        tokens = torch.remainder(pack.tokens, self.config.vocab_size)
        return Pack(tokens, layout=pack.layout, supervised=pack.supervised)
