"""Megatron around the model: its call signature, groups, data parallelism, optimizer, schedules and checkpoints."""

from v4model.parallel.megatron.core import PackedSeqParams, parallel_state, roll_tensor
from v4model.parallel.megatron.module import MegatronV4

__all__ = ["MegatronV4", "PackedSeqParams", "parallel_state", "roll_tensor"]
