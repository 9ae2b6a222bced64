"""B9: YaRN's mscale multiplies the softmax scale of compressed layers (1.277 for a factor of 16).

Mechanism: 0.1 ln(factor) + 1, which other models put on cos and sin, goes into the scores. No public report is known.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.patching import model_of, replaced
from harness.faults.registry import Fault
from v4model.layers.attention import base
from v4model.ops.attend import attend
from v4model.pack.visibility import Visibility

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    yarn = model_of(subject).config.rope_scaling
    mscale = 1.0 if yarn is None else 0.1 * math.log(yarn.factor) + 1

    def scaled(
        q: Tensor, kv: Tensor, pool: Tensor, sinks: Tensor, *, visibility: Visibility, ratio: int, picks: Tensor | None,
        first_key: int, block_tokens: int, wants_mass: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        return attend(
            q * mscale if ratio else q, kv, pool, sinks, visibility=visibility, ratio=ratio, picks=picks,
            first_key=first_key, block_tokens=block_tokens, wants_mass=wants_mass,
        )  # fmt: skip

    return replaced(subject, base, "attend", scaled)


FAULT = Fault(
    name="B9",
    title="YaRN's mscale is in the softmax scale",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=("all", "csa", "hca"),
    apply=_apply,
)
