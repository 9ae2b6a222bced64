"""B7: the attention output is not rotated back by the query's position (NVIDIA/Megatron-LM#5526).

Mechanism: the inverse rotation is left out. A sample alone is as wrong as the packed one, so only an independent
reading of the definition tells.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.attention import base
from v4model.ops.rope import rotate

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _never_back(x: Tensor, rotation: tuple[Tensor, Tensor], *, inverse: bool = False) -> Tensor:
    return x if inverse else rotate(x, rotation)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, base, "rotate", _never_back)


FAULT = Fault(
    name="B7",
    title="the attention output is not rotated back",
    reference="NVIDIA/Megatron-LM#5526",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
)
