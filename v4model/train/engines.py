"""Which engine carries a run."""

from __future__ import annotations

import torch

from v4model.train.engine import Engine
from v4model.train.settings import TrainSettings
from v4model.train.torch_engine import TorchEngine


def engine_of(settings: TrainSettings, *, device: torch.device | str = "cpu") -> Engine:
    """The engine that settings name, on this process's device.

    Raises:
        ConfigError: megatron off CUDA: its buffers and schedules ask for it.
    """
    if settings.engine == "torch":
        return TorchEngine(settings, device=device)
    # Its import takes seconds.
    from v4model.train.megatron_engine import MegatronEngine

    return MegatronEngine(settings, device=device)
