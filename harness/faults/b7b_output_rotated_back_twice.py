"""B7b: the attention output is rotated back twice (a variant of B7, NVIDIA/Megatron-LM#5526).

Mechanism: both the fused attention and its caller undo the query's rotation; what is left is the query's position with
the other sign. At position 0 of a sample nothing is wrong.
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


def _twice_back(x: Tensor, rotation: tuple[Tensor, Tensor], *, inverse: bool = False) -> Tensor:
    turned = rotate(x, rotation, inverse=inverse)
    return rotate(turned, rotation, inverse=True) if inverse else turned


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, base, "rotate", _twice_back)


FAULT = Fault(
    name="B7b",
    title="the attention output is rotated back twice",
    reference="NVIDIA/Megatron-LM#5526",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
)
