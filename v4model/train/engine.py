"""One rank's part of a training step on torch: forward, backward, gradients of all ranks, update."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from v4model.exchange import Ranks
from v4model.layers.experts import held_experts
from v4model.layers.share import Share
from v4model.model import V4Model
from v4model.model.loss import losses
from v4model.model.model import StageOutput
from v4model.pack.counts import StepCounts
from v4model.parallel.groups import Member
from v4model.parallel.pp import NoPipe, run_step
from v4model.parallel.processes import join, sum_gradients, total_over_stage
from v4model.train.feed import StepPacks
from v4model.train.optimizer import WideAdamW
from v4model.train.settings import TrainSettings

_SQUARED_AT_ONCE = 1 << 24


@dataclass(frozen=True, kw_only=True)
class StepLosses:
    """A step over all ranks: the loss and its terms, and the norm of its gradient before clipping."""

    loss: float
    main: float
    mtp: tuple[float, ...]
    balance: float
    kl: float
    grad_norm: float


class Engine:
    """This process's share of a model, in training.

    With a mesh of several ranks the process is one of a torch.distributed world of that size.
    """

    def __init__(self, settings: TrainSettings, *, device: torch.device | str = "cpu") -> None:
        self.settings, self.mesh = settings, settings.mesh
        self.member = Member(0, Ranks.one(), NoPipe()) if self.mesh.world == 1 else join(self.mesh)
        share = Share() if self.mesh.world == 1 else self.mesh.share(self.member.rank)
        self.model = V4Model(
            settings.config,
            dtype=settings.torch_dtype,
            device=device,
            seed=settings.seed,
            share=share,
            recompute=settings.recompute,
        )
        self.optimizer = WideAdamW(self.model, settings)

    @property
    def replica(self) -> int:
        """Which data-parallel replica this rank is of."""
        return self.mesh.replica(self.member.rank)

    def gradients(self, packs: StepPacks) -> StepLosses:
        """Forward and backward of a step; the gradients of the whole step are in `.grad`, the weights as they were."""
        member = self.member
        outs = run_step(self.model, packs.own, ranks=member.ranks, pipe=member.pipe, counts=packs.counts)
        if self.mesh.world > 1:
            sum_gradients(self.model, mesh=self.mesh)
        self._router_counts = _router_counts(outs)
        return self._losses(outs, counts=packs.counts)

    def update(self, step: int, losses: StepLosses) -> None:
        """Takes the step whose gradients are there."""
        limit = self.settings.clip_norm
        scale = 1.0 if limit is None else min(1.0, limit / max(losses.grad_norm, 1e-300))
        self.optimizer.step(step, scale=scale)
        if self.mesh.world > 1:
            for counts in self._router_counts.values():
                # Context ranks have the same counts, so that all are as many times too large: routers compare them.
                total_over_stage(counts, mesh=self.mesh)
        self.model.rebalance_routers(self._router_counts)

    def _losses(self, outs: list[StageOutput], *, counts: StepCounts) -> StepLosses:
        depths = self.settings.config.num_nextn_predict_layers
        terms = torch.zeros(4 + depths, dtype=torch.float64, device=self.model.device)
        # Every rank of a context group holds the same losses: one of them speaks for the group.
        if self.member.ranks.cp.rank == 0:
            for out in outs:
                terms += _terms(out, counts=counts, depths=depths)
        squares = self._own_squares()
        if self.mesh.world > 1:
            dist.all_reduce(terms)
            dist.all_reduce(squares)
        loss, balance, kl, main, *mtp = terms.tolist()
        return StepLosses(loss=loss, main=main, mtp=tuple(mtp), balance=balance, kl=kl, grad_norm=float(squares.sqrt()))

    def _own_squares(self) -> Tensor:
        """Sum of squares of the gradients that this rank is the first to hold."""
        mesh, rank = self.mesh, self.member.rank
        experts = held_experts(self.model)
        squares = torch.zeros((), dtype=torch.float64, device=self.model.device)
        for name, parameter in self.model.named_parameters():
            holders = mesh.expert_replicas(rank) if name in experts else mesh.stage_group(rank)
            # The last stage's embedding, which MTP reads, is the first stage's.
            is_copy = name.endswith("embed_tokens.weight") and mesh.stage(rank) > 0
            if parameter.grad is not None and rank == min(holders) and not is_copy:
                # Part by part: a stack of experts in float64 would be the largest thing of the whole step.
                for part in parameter.grad.flatten().split(_SQUARED_AT_ONCE):
                    squares += part.double().square().sum()
        return squares


def _terms(out: StageOutput, *, counts: StepCounts, depths: int) -> Tensor:
    """[4 + depths]: loss, balance, KL, main, then MTP by depth; those of the heads are 0 on a stage without."""
    step = losses(out.terms, counts=counts, config=out.config)
    parts = [step.total, step.balance, step.kl, step.main, *step.mtp]
    found = torch.zeros(4 + depths, dtype=torch.float64, device=out.loss.device)
    found[: len(parts)] = torch.stack([part.detach().double() for part in parts])
    return found


def _router_counts(outs: list[StageOutput]) -> dict[str, Tensor]:
    return {name: torch.stack([out.router_counts[name] for out in outs]).sum(0) for name in outs[0].router_counts}
