"""B7c: the attention output is rotated on instead of back (a variant of B7, NVIDIA/Megatron-LM#5526).

Mechanism: the tables of the forward rotation are used again, without the sine's other sign.
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


def _onward(x: Tensor, rotation: tuple[Tensor, Tensor], *, inverse: bool = False) -> Tensor:  # noqa: ARG001
    return rotate(x, rotation)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, base, "rotate", _onward)


FAULT = Fault(
    name="B7c",
    title="the attention output is rotated on instead of back",
    reference="NVIDIA/Megatron-LM#5526",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
)
