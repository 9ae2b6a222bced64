"""One rank's part of a training step, whichever library sums gradients and updates weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from v4model import hf
from v4model.config import V4Config
from v4model.model import V4Model
from v4model.model.loss import StepTerms, losses
from v4model.model.model import StageOutput
from v4model.pack.counts import StepCounts
from v4model.parallel.groups import Member
from v4model.train.feed import StepPacks
from v4model.train.settings import TrainSettings


@dataclass(frozen=True, kw_only=True)
class StepLosses:
    """A step over all ranks: the loss and its terms, and the norm of its gradient before clipping."""

    loss: float
    main: float
    mtp: tuple[float, ...]
    balance: float
    kl: float
    grad_norm: float


@dataclass(frozen=True, eq=False)
class Tally:
    """What a step keeps of a micro-batch's output: its sums, and each learned router's selections [E]."""

    terms: StepTerms
    router_counts: dict[str, Tensor]

    @classmethod
    def of(cls, out: StageOutput) -> Tally:
        """Without the graph, so that the micro-batch's values can go."""
        return cls(out.terms.detached(), out.router_counts)


class Engine(ABC):
    """This process's share of a model, in training: member of a torch.distributed world of `settings.mesh.world` ranks.

    Args:
        model: this rank's share.
        member: the rank, and the groups that the model computes in.
    """

    def __init__(self, settings: TrainSettings, *, model: V4Model, member: Member) -> None:
        self.settings, self.mesh = settings, settings.mesh
        self.model, self.member = model, member

    @property
    def replica(self) -> int:
        """Which data-parallel replica this rank is of."""
        return self.mesh.replica(self.member.rank)

    def gradients(self, packs: StepPacks) -> StepLosses:
        """Forward and backward of a step: its gradients are there, the weights as they were; collective."""
        tallies = self._forward_backward(packs)
        self._router_counts = {
            name: torch.stack([tally.router_counts[name] for tally in tallies]).sum(0)
            for name in tallies[0].router_counts
        }
        return self._losses(tallies, counts=packs.counts)

    def update(self, step: int, losses: StepLosses) -> None:
        """Takes the step whose gradients are there; collective."""
        self._take_step(step, losses)
        for counts in self._router_counts.values():
            # Context ranks have the same counts, so that all are as many times too large: routers compare them.
            self._total_over_stage(counts)
        self.model.rebalance_routers(self._router_counts)

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write weights, optimizer and router biases into a new folder; collective."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Fill this engine from a folder that `save` wrote on any number of ranks; collective."""

    def load_weights(self, source: Path) -> None:
        """Begin from weights that someone published: a safetensors folder in any spelling that `v4model.hf` reads.

        Raises:
            WeightError: weights that are not this model's.
        """
        hf.load(self.model, source)
        self._adopt_weights()

    def peak_bytes(self) -> int | None:
        """The most that tensors of one rank held on its device so far, the largest of all ranks; collective.

        None off CUDA.
        """
        if self.model.device.type != "cuda":
            return None
        peak = torch.tensor(torch.cuda.max_memory_allocated(), device=self.model.device)
        if self.mesh.world > 1:
            dist.all_reduce(peak, op=dist.ReduceOp.MAX)
        return int(peak)

    @property
    def sent_bytes(self) -> tuple[int, int]:
        """What this rank has sent to others so far, over its context and its expert group."""
        ranks = self.member.ranks
        return ranks.cp.sent_bytes.total(), ranks.ep.sent_bytes.total()

    def all_sent_since(self, before: tuple[int, int]) -> tuple[int, int]:
        """What all ranks together have sent since each had sent `before`; collective."""
        sent = torch.tensor(
            [now - then for now, then in zip(self.sent_bytes, before, strict=True)], device=self.model.device
        )
        if self.mesh.world > 1:
            dist.all_reduce(sent)
        cp, ep = sent.tolist()
        return cp, ep

    @abstractmethod
    def _adopt_weights(self) -> None:
        """Makes the model's weights those that the optimizer goes on from."""

    @abstractmethod
    def _forward_backward(self, packs: StepPacks) -> list[Tally]:
        """By micro-batch of this replica."""

    @abstractmethod
    def _grad_norm(self) -> float:
        """L2 norm over all ranks of the gradients that are there, each parameter once."""

    @abstractmethod
    def _take_step(self, step: int, losses: StepLosses) -> None:
        """Clip and update the weights."""

    @abstractmethod
    def _total_over_stage(self, x: Tensor) -> None:
        """Adds up x in place over the ranks that hold the same layers."""

    def _losses(self, tallies: list[Tally], *, counts: StepCounts) -> StepLosses:
        depths = self.settings.config.num_nextn_predict_layers
        terms = torch.zeros(4 + depths, dtype=torch.float64, device=self.model.device)
        # Every rank of a context group holds the same losses: one of them speaks for the group.
        if self.member.ranks.cp.rank == 0:
            for tally in tallies:
                terms += _terms(tally, counts=counts, config=self.settings.config)
        if self.mesh.world > 1:
            dist.all_reduce(terms)
        loss, balance, kl, main, *mtp = terms.tolist()
        return StepLosses(loss=loss, main=main, mtp=tuple(mtp), balance=balance, kl=kl, grad_norm=self._grad_norm())


def _terms(tally: Tally, *, counts: StepCounts, config: V4Config) -> Tensor:
    """[4 + depths]: loss, balance, KL, main, then MTP by depth; those of the heads are 0 on a stage without."""
    step = losses(tally.terms, counts=counts, config=config)
    parts = [step.total, step.balance, step.kl, step.main, *step.mtp]
    found = torch.zeros(4 + config.num_nextn_predict_layers, dtype=torch.float64, device=step.total.device)
    found[: len(parts)] = torch.stack([part.double() for part in parts])
    return found
