"""A9: token ids do not reach the hash layers, which route everything to expert 0 (NVIDIA/TensorRT-LLM#13442).

Mechanism: a missing tensor of ids is filled with zeros on its way, and so is what the table gives for it: every choice
of every token is expert 0. Weights are made as ever, of the affinity to it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.router import HashRouter, Routing

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _to_expert_0(router: HashRouter, x: Tensor, *, tokens: Tensor) -> Routing:
    return router.weigh(router.affinity(x), torch.zeros_like(router.tid2eid[tokens]))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, HashRouter, "forward", _to_expert_0)


FAULT = Fault(
    name="A9",
    title="hash layers get no token ids and route everything to expert 0",
    reference="NVIDIA/TensorRT-LLM#13442",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
)
