"""The engine on torch alone: CPU or GPU, any dtype, gradients summed with all_reduce, its own wide AdamW."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from v4model.exchange import Ranks
from v4model.layers.experts import held_experts
from v4model.layers.router import LearnedRouter
from v4model.layers.share import Share
from v4model.model import V4Model
from v4model.parallel.groups import Member
from v4model.parallel.pp import NoPipe, run_step_keeping
from v4model.parallel.processes import join, sum_gradients, total_over_stage
from v4model.train.engine import Engine, StepLosses, Tally
from v4model.train.feed import StepPacks
from v4model.train.optimizer import WideAdamW
from v4model.train.settings import TrainSettings

_SQUARED_AT_ONCE = 1 << 24


class TorchEngine(Engine):
    """Checkpoints hold every expert as an entry of its own, so that any number of ranks reads them."""

    def __init__(self, settings: TrainSettings, *, device: torch.device | str) -> None:
        mesh = settings.mesh
        member = Member(0, Ranks.one(), NoPipe()) if mesh.world == 1 else join(mesh)
        share = Share() if mesh.world == 1 else mesh.share(member.rank)
        model = V4Model(
            settings.config,
            dtype=settings.torch_dtype,
            device=device,
            seed=settings.seed,
            share=share,
            recompute=settings.recompute,
        )
        super().__init__(settings, model=model, member=member)
        self.optimizer = WideAdamW(model, settings)

    def save(self, folder: Path) -> None:
        with _one_process_is_meant():
            save(self._entries(), checkpoint_id=folder, no_dist=not dist.is_initialized())

    def load(self, folder: Path) -> None:
        with _one_process_is_meant():
            load(self._entries(), checkpoint_id=folder, no_dist=not dist.is_initialized())
        self.optimizer.publish()

    def _adopt_weights(self) -> None:
        self.optimizer.adopt()

    def _forward_backward(self, packs: StepPacks) -> list[Tally]:
        member = self.member
        tallies = run_step_keeping(
            self.model, packs.own, ranks=member.ranks, pipe=member.pipe, counts=packs.counts, keep=Tally.of
        )
        if self.mesh.world > 1:
            sum_gradients(self.model, mesh=self.mesh)
        return tallies

    def _take_step(self, step: int, losses: StepLosses) -> None:
        limit = self.settings.clip_norm
        scale = 1.0 if limit is None else min(1.0, limit / max(losses.grad_norm, 1e-300))
        self.optimizer.step(step, scale=scale)

    def _total_over_stage(self, x: Tensor) -> None:
        if self.mesh.world > 1:
            total_over_stage(x, mesh=self.mesh)

    def _grad_norm(self) -> float:
        squares = self._own_squares()
        if self.mesh.world > 1:
            dist.all_reduce(squares)
        return float(squares.sqrt())

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

    def _entries(self) -> dict[str, Tensor]:
        """What this rank holds, by names that all ranks agree on; views, so that reading fills the engine.

        Stages that hold copies of one embedding write the same values under one name.
        """
        held = held_experts(self.model)
        entries = {}
        for sort, by_name in self.optimizer.state().items():
            for name, tensor in by_name.items():
                if name in held and tensor.ndim:
                    for row, expert in enumerate(held[name]):
                        entries[f"{sort}/{name}/{expert}"] = tensor[row]
                else:
                    entries[f"{sort}/{name}"] = tensor
        for path, module in self.model.named_modules():
            if isinstance(module, LearnedRouter):
                entries[f"bias/{path}"] = module.e_score_correction_bias
        return entries


@contextmanager
def _one_process_is_meant() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
        yield
