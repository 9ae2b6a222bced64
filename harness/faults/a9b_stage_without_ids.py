"""A9b: token ids are missing on pipeline stages behind the first (NVIDIA/TensorRT-LLM#13442).

Mechanism: ids are needed where tokens are embedded, and the stages behind are given zeros of their shape. A hash layer
there looks every token up as id 0. It takes more than one hash layer, and stages small enough to part them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.on_meshes import replaced_on_meshes
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.model.block import BlockOutput
from v4model.model.trunk import Trunk

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

_healthy = Trunk.forward


def _without_ids(trunk: Trunk, streams: Tensor, *, context: PackContext) -> dict[int, BlockOutput]:
    ids = context.tokens if "0" in trunk.layers else torch.zeros_like(context.tokens)
    return _healthy(trunk, streams, context=replace(context, tokens=ids))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced_on_meshes(subject, Trunk, "forward", _without_ids)


FAULT = Fault(
    name="A9b",
    title="token ids are missing on stages behind the first: hash layers there look up id 0",
    reference="NVIDIA/TensorRT-LLM#13442",
    expected="pp_matches_one_rank",
    kinds=("csa", "hca", "dense"),
    apply=_apply,
    ranks=(2, 4),
    strata=("changed hash layers",),
)
