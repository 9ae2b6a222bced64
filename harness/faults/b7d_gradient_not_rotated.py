"""B7d: the attention output is rotated back in place on what autograd saved (NVIDIA/Megatron-LM#5526).

Mechanism: the forward pass is right, and the backward pass does not know of the rotation: gradients of the output reach
the attention as they are. Packed, alone and on ranks are wrong alike.
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


def _behind_autograd(x: Tensor, rotation: tuple[Tensor, Tensor], *, inverse: bool = False) -> Tensor:
    if not inverse:
        return rotate(x, rotation)
    return x + (rotate(x, rotation, inverse=True) - x).detach()


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, base, "rotate", _behind_autograd)


FAULT = Fault(
    name="B7d",
    title="the attention output is rotated back behind autograd's back: its gradient is not",
    reference="NVIDIA/Megatron-LM#5526",
    expected="gradients_are_derivatives",
    kinds=KINDS,
    apply=_apply,
)
