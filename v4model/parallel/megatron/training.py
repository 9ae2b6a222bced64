"""A model in training by Megatron: data parallelism, distributed optimizer, pipeline schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from v4model.errors import ConfigError
from v4model.layers.experts import held_experts
from v4model.model.model import StageOutput
from v4model.pack import Pack
from v4model.pack.counts import StepCounts
from v4model.pack.shard import shard_of
from v4model.parallel.megatron.core import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    MegatronOptimizer,
    OptimizerConfig,
    ParamKey,
    ParamPredicate,
    finalize_model_grads,
    get_forward_backward_func,
    get_megatron_optimizer,
    parallel_state,
)
from v4model.parallel.megatron.module import MegatronV4, carrying_loss

Kept = TypeVar("Kept")


@dataclass(frozen=True, kw_only=True)
class OptimizerChoices:
    """AdamW's constants, and where its state lives.

    Args:
        clip_norm: gradients of a larger norm are scaled down to it; 0 for no limit.
        offload: share of the optimizer's weights and moments that lives, and is updated, on the host, 0 to 1.
        overlap_param_gather: refused.

    Raises:
        ConfigError: parameters that would be gathered while the forward pass runs.
    """

    learning_rate: float
    weight_decay: float
    beta1: float
    beta2: float
    epsilon: float
    clip_norm: float
    offload: float = 0.0
    overlap_param_gather: bool = False

    def __post_init__(self) -> None:
        if self.overlap_param_gather:
            # Megatron waits for a bucket in a hook before its module's forward; the chunked cross entropy reads the
            # head's weight without one, since no call has all the logits, and would read it half gathered.
            raise ConfigError(
                got="overlap_param_gather with the chunked linear cross entropy",
                expected="no overlap: the loss reads the head's weight outside of its module's forward, "
                "where nothing waits until it is gathered",
                where="Megatron's data parallelism",
            )


# Matrices decay, vectors do not. Matrices in float32 beside bfloat16 ones are a group of their own: megatron-core
# (0.16.1, 0.19.2) puts the float32 weights of a group first, and counts them where they stood when it saves.
_GROUPS = {
    ParamKey(predicate=ParamPredicate("vectors", lambda weight: weight.ndim <= 1)): {"wd_mult": 0.0},
    ParamKey(
        predicate=ParamPredicate("float32 matrices", lambda weight: weight.ndim > 1 and weight.dtype == torch.float32)
    ): {"wd_mult": 1.0},
}


class MegatronTraining:
    """DDP, the distributed optimizer and the schedule around a model, on parallel_state's groups.

    Gradients add up in float32 over all ranks that hold a parameter, undivided: losses are shares of the step's.
    """

    def __init__(self, model: MegatronV4, choices: OptimizerChoices) -> None:
        self.model, self.choices = model, choices
        for name in held_experts(model):
            # Reduced over the expert replicas, not over all ranks of the stage.
            model.get_parameter(name).allreduce = False
        _take_embedding(model)
        reduction = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=True)
        self.ddp = DistributedDataParallel(model.config, reduction, model)
        model.config.finalize_model_grads_func = _finish
        self.optimizer = _optimizer(self.ddp, choices, dtype=model.v4.dtype)
        self._run = get_forward_backward_func()

    def gradients(
        self, packs: Sequence[Pack], *, counts: StepCounts, keep: Callable[[StageOutput], Kept]
    ) -> list[Kept]:
        """Forward and backward over a replica's micro-batches; the step's gradients are then with the optimizer.

        Args:
            packs: all of one size.
            counts: of the whole step, over all replicas.
            keep: what to keep of this stage's output of a micro-batch, which is let go for its memory.
        """
        self.ddp.zero_grad_buffer()
        self.optimizer.zero_grad()
        kept: list[Kept] = []
        context_ranks = self.model.ranks.cp.ranks

        def forward(packs: Iterator[Pack], _: DistributedDataParallel) -> tuple[Tensor, Callable[..., object]]:
            out = self.model.run_pack(next(packs), counts=counts)
            kept.append(keep(out))
            return (out.loss if self.model.post_process else carrying_loss(out)), _undivided

        self._run(
            forward_step_func=forward,
            data_iterator=iter(packs),
            model=[self.ddp],
            num_microbatches=len(packs),
            seq_length=shard_of(packs[0].layout, rank=0, ranks=context_ranks).size * context_ranks,
            micro_batch_size=self.model.v4.config.hc_mult,
        )
        self.optimizer.prepare_grads()
        return kept

    def grad_norm(self) -> float:
        """L2 norm of the step's gradient over all ranks, every parameter once; collective, after `gradients`."""
        return float(self.optimizer.get_grad_norm())

    def update(self, *, learning_rate: float) -> None:
        """Clip, take the step whose gradients are there, and gather the new weights; collective."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
            # Megatron's scheduler, which is not used here, would multiply.
            group["weight_decay"] = self.choices.weight_decay * group["wd_mult"]
        self.optimizer.step()


def _undivided(loss: Tensor) -> tuple[Tensor, Tensor, None]:
    """The loss as it is; its tokens, by which Megatron would divide, are counted already."""
    return loss, torch.zeros((), dtype=torch.int, device=loss.device), None


def _take_embedding(model: MegatronV4) -> None:
    """Leaves the sum of the embedding's gradients over the first and the last stage to `_finish`.

    Megatron sums what data parallelism has cut over the ranks already. So that both stages cut alike it gives the
    embedding a bucket of its own, and then (0.16.1, 0.19.2) saves its last rows' optimizer state as zeros.
    """
    model.config.mtp_num_layers = None
    weight = model.shared_embedding_or_output_weight()
    if weight is not None:
        weight.shared_embedding = False  # type: ignore[attr-defined]


def _finish(model: list[DistributedDataParallel], num_tokens: Tensor | None, **groups: object) -> None:
    """Reduces the gradients over the ranks that hold a parameter; nothing is divided by the schedule's tokens."""
    del num_tokens
    (ddp,) = model
    v4: MegatronV4 = ddp.module
    weight = v4.shared_embedding_or_output_weight()
    if weight is not None and v4.v4.share.stages > 1 and v4.v4.config.num_nextn_predict_layers:
        main_grad = weight.main_grad  # type: ignore[attr-defined]
        dist.all_reduce(main_grad, group=parallel_state.get_embedding_group())
    finalize_model_grads(model, None, **groups)


def _optimizer(ddp: DistributedDataParallel, choices: OptimizerChoices, *, dtype: torch.dtype) -> MegatronOptimizer:
    offloads = choices.offload > 0
    config = OptimizerConfig(
        optimizer="adam",
        lr=choices.learning_rate,
        weight_decay=choices.weight_decay,
        adam_beta1=choices.beta1,
        adam_beta2=choices.beta2,
        adam_eps=choices.epsilon,
        clip_grad=choices.clip_norm,
        bf16=dtype == torch.bfloat16,
        params_dtype=dtype,
        use_distributed_optimizer=True,
        optimizer_cpu_offload=offloads,
        optimizer_offload_fraction=choices.offload,
        # Else a second copy of the weights in float32 stays on the device.
        use_precision_aware_optimizer=offloads,
    )
    # With gradients a part of a float32 weight would be no leaf, which the optimizer on the host refuses.
    with torch.no_grad():
        optimizer = get_megatron_optimizer(config, [ddp], config_overrides=_GROUPS, use_gloo_process_groups=False)
    if offloads:
        for part in optimizer.chained_optimizers:
            part.optimizer.register_step_pre_hook(_hand_over_wide_gradients)
    return optimizer


def _hand_over_wide_gradients(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """Gradients of the float32 weights that stay on the device, to where their AdamW looks for them.

    Megatron's optimizer on host and device (0.16.1, 0.19.2) does it for weights in bfloat16 only; the others would
    never move.
    """
    for group in optimizer.param_groups:
        for weight in group["params"]:
            if weight.dtype == torch.float32 and weight not in optimizer.gpu_params_map_cpu_copy:  # type: ignore[attr-defined]
                weight.grad = getattr(weight, "decoupled_grad", weight.grad)
