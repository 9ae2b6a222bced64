"""What this package uses of megatron-core, 0.16 to 0.19. The only file that imports it."""

from __future__ import annotations

import warnings

# megatron-core's checkpoints are written by processes that die without it, and waited for: better to end here.
import psutil  # noqa: F401

# What it says when it is imported, or used, without its optional companions.
_AT_IMPORT = (
    r".*torch.jit.script.* is deprecated",
    r"(Transformer Engine and Apex are|Apex is) not installed",
    r"The following imports from `dynamic_context.py`",
)
with warnings.catch_warnings():
    for _message in _AT_IMPORT:
        warnings.filterwarnings("ignore", message=_message)
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing import ShardedTensor
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.enums import ModelType
    from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer
    from megatron.core.optimizer.optimizer_config import ParamKey, ParamPredicate
    from megatron.core.packed_seq_params import PackedSeqParams
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.transformer.module import MegatronModule
    from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler, roll_tensor
    from megatron.core.transformer.transformer_config import TransformerConfig

__all__ = [
    "DistributedDataParallel",
    "DistributedDataParallelConfig",
    "MTPLossAutoScaler",
    "MegatronModule",
    "MegatronOptimizer",
    "ModelType",
    "OptimizerConfig",
    "PackedSeqParams",
    "ParamKey",
    "ParamPredicate",
    "ShardedTensor",
    "TransformerConfig",
    "dist_checkpointing",
    "finalize_model_grads",
    "get_forward_backward_func",
    "get_megatron_optimizer",
    "parallel_state",
    "roll_tensor",
]
