"""F6: mHC's comb is used untransposed (NVIDIA/Megatron-LM#4839, NVIDIA-NeMo/Automodel#2154).

Mechanism: stream k gets sum_j comb[k, j] X_j instead of sum_j comb[j, k] X_j. A doubly stochastic matrix hides it from
every norm, and samples alone are as wrong as packed ones.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.hyper import expand
from v4model.model import block

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _untransposed(streams: Tensor, out: Tensor, *, post: Tensor, comb: Tensor) -> Tensor:
    return expand(streams, out, post=post, comb=comb.mT)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, block, "expand", _untransposed)


FAULT = Fault(
    name="F6",
    title="mHC mixes the streams by comb untransposed",
    reference="NVIDIA/Megatron-LM#4839",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
)
