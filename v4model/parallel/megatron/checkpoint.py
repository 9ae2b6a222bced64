"""Checkpoints by megatron-core's dist_checkpointing, to be read by any mesh of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from v4model.layers.experts import held_experts
from v4model.model import V4Model
from v4model.parallel.megatron.core import ShardedTensor, dist_checkpointing, parallel_state
from v4model.parallel.megatron.training import MegatronTraining

# State in the shapes of the weights, which does not depend on how buffers were cut over ranks.
_METADATA = {"distrib_optim_sharding_type": "fully_reshardable", "chained_optim_avoid_prefix": True}


def save_checkpoint(training: MegatronTraining, folder: Path) -> None:
    """Weights, router biases and the optimizer's state into a new folder; collective."""
    if dist.get_rank() == 0:
        folder.mkdir(parents=True)
    dist.barrier()
    dist_checkpointing.save(_state(training, is_loading=False), str(folder), validate_access_integrity=True)


def load_checkpoint(training: MegatronTraining, folder: Path) -> None:
    """Fill a training of any mesh from a folder that `save_checkpoint` wrote; collective."""
    for part in _parts(training):
        if not part.optimizer.state:
            _allocate_state(part.optimizer)
    state = dist_checkpointing.load(_state(training, is_loading=True), str(folder))
    training.model.v4.load_state_dict(state["model"])
    states = state["optimizer"]
    parts = _parts(training)
    # A chain of one has its state without a number.
    for part, own in zip(parts, [states] if len(parts) == 1 else [states[i] for i in range(len(parts))], strict=True):
        _load_part(part, own)


def _parts(training: MegatronTraining) -> list[Any]:
    """The distributed optimizers that hold something: of experts, and of all else."""
    return [part for part in training.optimizer.chained_optimizers if not part.is_stub_optimizer]


def _allocate_state(optimizer: torch.optim.Optimizer) -> None:
    """What the first step would allocate; Megatron asks for the state's step before there was one."""
    if not isinstance(optimizer, torch.optim.AdamW):
        optimizer.dummy_step()  # type: ignore[attr-defined]  # Megatron's hybrid of host and device
        return
    for group in optimizer.param_groups:
        for weight in group["params"]:
            optimizer.state[weight] = {
                "step": torch.zeros((), dtype=torch.float32),
                "exp_avg": torch.zeros_like(weight),
                "exp_avg_sq": torch.zeros_like(weight),
            }


def _load_part(part: Any, state: dict[str, Any]) -> None:
    """As part.load_state_dict, also for torch's AdamW, whose state has a step of its own a weight.

    megatron-core (0.16.1, 0.19.2) looks for that step among what it saved a weight, where it is not, and gives all
    weights one tensor, which every one of them would count up.
    """
    adam = part.optimizer
    if not isinstance(adam, torch.optim.AdamW):
        part.load_state_dict(state)
        return
    weights = state.pop("param_state")
    del state["param_state_sharding_type"]
    part.load_state_dict(state)
    steps = [own.pop("step") for own in adam.state.values()]
    part.load_parameter_state_from_fully_reshardable(weights)
    for own, step in zip(adam.state.values(), steps, strict=True):
        own["step"] = step.clone()


def _state(training: MegatronTraining, *, is_loading: bool) -> dict[str, Any]:
    model = _sharded(training.model.v4)
    optimizer = training.optimizer.sharded_state_dict(model, is_loading=is_loading, metadata=_METADATA)
    return {"model": model, "optimizer": optimizer}


def _sharded(model: V4Model) -> dict[str, ShardedTensor]:
    """Weights and buffers by name: experts are rows of the whole stack, all else is whole on every rank of a stage."""
    share, held = model.share, held_experts(model)
    replica = parallel_state.get_data_parallel_rank(with_context_parallel=True)
    expert_replica = parallel_state.get_expert_data_parallel_rank()
    entries = {}
    # Megatron finds a weight's optimizer state by the parameter itself.
    for name, tensor in model.state_dict(keep_vars=True).items():
        is_expert = name in held
        # The last stage's embedding, which MTP reads, is the first stage's.
        is_copy = name.endswith("embed_tokens.weight") and not share.is_first
        offsets = ((0, share.expert_rank, share.expert_ranks),) if is_expert else ()
        entries[name] = ShardedTensor.from_rank_offsets(
            name,
            tensor,
            *offsets,
            replica_id=(int(is_copy), 0, expert_replica if is_expert else replica),
        )
    return entries
