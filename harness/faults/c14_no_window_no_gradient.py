"""C14: a pack without a complete window returns detached rows (ByteDance-Seed/VeOmni#974, AMD-AGI/Primus#1062).

Mechanism: the compressor returns early with an empty tensor where there is no window. All values are right, and its
parameters have no gradient: an optimizer or a reducer that counts on one fails at the next step.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.compress import healthy as healthy_compressor
from harness.faults.patching import replaced
from harness.faults.registry import Fault
from v4model.layers.compressor import Compressor
from v4model.layers.context import PackContext

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    def forward(compressor: Compressor, x: Tensor, *, context: PackContext, where: str) -> Tensor:
        if not context.visibility.pools[compressor.ratio].windows.count:
            return x.new_zeros(0, compressor.kv_norm.weight.numel())
        return healthy_compressor(compressor, x, context=context, where=where)

    return replaced(subject, Compressor, "forward", forward)


FAULT = Fault(
    name="C14",
    title="without a complete window the compressor's parameters have no gradient",
    reference="ByteDance-Seed/VeOmni#974",
    expected="every_parameter_has_a_gradient",
    kinds=("all", "csa", "hca"),
    apply=_apply,
    strata=(
        "pack without a complete CSA window",
        "pack without a complete HCA window",
    ),
)
