"""The engine on megatron-core: its data parallelism, distributed optimizer, schedules and checkpoints; needs CUDA."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from v4model.errors import ConfigError
from v4model.parallel.groups import Member
from v4model.parallel.megatron import MegatronV4, parallel_state
from v4model.parallel.megatron.checkpoint import load_checkpoint, save_checkpoint
from v4model.parallel.megatron.groups import initialise
from v4model.parallel.megatron.training import MegatronTraining, OptimizerChoices
from v4model.parallel.pp import NoPipe
from v4model.train.engine import Engine, StepLosses, Tally
from v4model.train.feed import StepPacks
from v4model.train.settings import TrainSettings


class MegatronEngine(Engine):
    """Gradients are kept and reduced in float32; optimizer state is spread over the ranks that hold a parameter.

    Raises:
        ConfigError: float64, which Megatron's optimizer does not know, no process group, or groups of another mesh.
    """

    def __init__(self, settings: TrainSettings, *, device: torch.device | str) -> None:
        if settings.dtype == "float64":
            raise ConfigError(got="float64", expected="float32 or bfloat16", where="training on megatron-core")
        if not dist.is_initialized():
            expected = "torch.distributed's default group, also of one rank"
            raise ConfigError(got="no process group", expected=expected, where="training on megatron-core")
        initialise(settings.mesh)
        megatron = MegatronV4(
            settings.config,
            dtype=settings.torch_dtype,
            device=device,
            seed=settings.seed,
            per_token_loss=True,
            recompute=settings.recompute,
        )
        super().__init__(settings, model=megatron.v4, member=Member(dist.get_rank(), megatron.ranks, NoPipe()))
        choices = OptimizerChoices(
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
            beta1=settings.beta1,
            beta2=settings.beta2,
            epsilon=settings.epsilon,
            clip_norm=settings.clip_norm or 0.0,
            offload=settings.offload,
        )
        self.training = MegatronTraining(megatron, choices)

    def save(self, folder: Path) -> None:
        save_checkpoint(self.training, folder)

    def load(self, folder: Path) -> None:
        load_checkpoint(self.training, folder)

    def _adopt_weights(self) -> None:
        self.training.optimizer.reload_model_params()

    def _forward_backward(self, packs: StepPacks) -> list[Tally]:
        return self.training.gradients(packs.own, counts=packs.counts, keep=Tally.of)

    def _grad_norm(self) -> float:
        return self.training.grad_norm()

    def _take_step(self, step: int, losses: StepLosses) -> None:
        del losses  # Megatron clips by the norm that it takes itself
        self.training.update(learning_rate=self.settings.learning_rate_at(step))

    def _total_over_stage(self, x: Tensor) -> None:
        dist.all_reduce(x, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
