"""A4: middle stages of a pipeline receive no layout (NVIDIA-NeMo/Megatron-Bridge#2952, #3926).

Mechanism: the batch, and the layout with it, is read where tokens are embedded and where labels are needed. A stage
between those has streams of the right shape and takes them for one sample.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.falsified import as_one_sample
from harness.faults.on_meshes import replaced_on_meshes
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.model.block import BlockOutput
from v4model.model.trunk import Trunk

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

_healthy = Trunk.forward


def _without_layout(trunk: Trunk, streams: Tensor, *, context: PackContext) -> dict[int, BlockOutput]:
    last = str(context.config.num_hidden_layers - 1)
    in_the_middle = "0" not in trunk.layers and last not in trunk.layers
    return _healthy(trunk, streams, context=as_one_sample(context) if in_the_middle else context)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced_on_meshes(subject, Trunk, "forward", _without_layout)


FAULT = Fault(
    name="A4",
    title="middle pipeline stages get no layout: they take the row for one sample",
    reference="NVIDIA-NeMo/Megatron-Bridge#2952",
    expected="pp_matches_one_rank",
    kinds=("all",),
    apply=_apply,
    ranks=(4,),
)
