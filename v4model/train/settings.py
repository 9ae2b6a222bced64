"""What a training run is told: every choice in one frozen value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from v4model.config import V4Config
from v4model.errors import ConfigError
from v4model.parallel.groups import Mesh

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}

ENGINES = ("torch", "megatron")


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """One run.

    Args:
        config: the model's.
        steps: where the run ends, counted from its very beginning.
        packs_per_step: over all replicas; each replica runs its share one after another.
        learning_rate: reached after `warmup_steps`, then falling along a cosine to `least_share` of it at `decay_steps`
            (None: it stays). It follows from the step alone, so that a run which ends later goes the same way.
        weight_decay: of matrices; gains, biases, sinks and scales have none.
        clip_norm: gradients of a larger norm are scaled down to it; None for no limit.
        dtype: of weights and products. In bfloat16 the optimizer keeps its own weights in float32.
        seed: of the initial weights.
        recompute: whether blocks compute their intermediate values again in the backward pass: the same bits.
        mesh: the ranks.
        engine: "torch", on any device and dtype, or "megatron", which needs CUDA.
        offload: share of the optimizer that lives on the host, 0 to 1; of the engine megatron.

    Raises:
        ConfigError: a number out of range, or sizes that do not fit together.
    """

    config: V4Config
    steps: int
    packs_per_step: int = 1
    learning_rate: float = 3e-4
    warmup_steps: int = 0
    decay_steps: int | None = None
    least_share: float = 0.1
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    clip_norm: float | None = 1.0
    dtype: str = "float32"
    seed: int = 0
    recompute: bool = False
    mesh: Mesh = field(default_factory=Mesh)
    engine: str = "torch"
    offload: float = 0.0

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("packs_per_step", 1), ("warmup_steps", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise ConfigError(got=f"{name} {getattr(self, name)}", expected=f"at least {least}", where="training")
        for name in ("learning_rate", "epsilon", *(("clip_norm",) if self.clip_norm is not None else ())):
            if not 0 < getattr(self, name) < math.inf:
                expected = "a finite number more than 0"
                raise ConfigError(got=f"{name} {getattr(self, name)}", expected=expected, where="training")
        for name in ("weight_decay", "beta1", "beta2", "least_share"):
            if not 0 <= getattr(self, name) < (math.inf if name == "weight_decay" else 1):
                expected = "at least 0" + ("" if name == "weight_decay" else " and below 1")
                raise ConfigError(got=f"{name} {getattr(self, name)}", expected=expected, where="training")
        if self.decay_steps is not None and self.decay_steps <= self.warmup_steps:
            got = f"decay_steps {self.decay_steps}"
            raise ConfigError(got=got, expected=f"more than the {self.warmup_steps} warmup_steps", where="training")
        if self.dtype not in DTYPES:
            raise ConfigError(got=f"dtype {self.dtype!r}", expected=f"one of {', '.join(DTYPES)}", where="training")
        if self.engine not in ENGINES:
            raise ConfigError(got=f"engine {self.engine!r}", expected=f"one of {', '.join(ENGINES)}", where="training")
        if not 0 <= self.offload <= 1:
            raise ConfigError(got=f"offload {self.offload:g}", expected="a share, 0 to 1", where="training")
        if self.offload and self.engine != "megatron":
            expected = "--engine megatron, or no offload"
            raise ConfigError(got=f"offload {self.offload:g} on {self.engine}", expected=expected, where="training")
        if self.packs_per_step % self.mesh.dp:
            expected = f"a multiple of the {self.mesh.dp} replicas"
            raise ConfigError(got=f"packs_per_step {self.packs_per_step}", expected=expected, where="training")

    @property
    def torch_dtype(self) -> torch.dtype:
        """Of weights and products."""
        return DTYPES[self.dtype]

    @property
    def wide_dtype(self) -> torch.dtype:
        """Of the optimizer's weights and moments, at least float32."""
        return torch.promote_types(self.torch_dtype, torch.float32)

    def learning_rate_at(self, step: int) -> float:
        """Of step `step`, counted from 0."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        if self.decay_steps is None:
            return self.learning_rate
        done = min((step - self.warmup_steps) / (self.decay_steps - self.warmup_steps), 1.0)
        share = self.least_share + (1 - self.least_share) * (1 + math.cos(math.pi * done)) / 2
        return self.learning_rate * share
