"""C13: rows beyond the complete windows are uninitialised (NVIDIA/cudnn-frontend#624).

Mechanism: rows get a buffer of fixed capacity, one for each `ratio` tokens; samples leave remainders, so that fewer are
filled. Nobody reads the slack, and its gradient is 0, but the gradient of the norm's weight multiplies that 0 with
whatever stands there: NaN here.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.compress import compressed
from harness.faults.patching import replaced
from harness.faults.registry import Fault
from v4model.layers.compressor import Compressor
from v4model.layers.context import PackContext

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    def forward(compressor: Compressor, x: Tensor, *, context: PackContext, where: str) -> Tensor:
        def norm(rows: Tensor) -> Tensor:
            slack = max(context.tokens.numel() // compressor.ratio - len(rows), 0)
            normed: Tensor = compressor.kv_norm(torch.cat([rows, rows.new_full((slack, rows.shape[1]), float("nan"))]))
            return normed[: len(rows)]

        return compressed(compressor, x, context=context, where=where, norm=norm)

    return replaced(subject, Compressor, "forward", forward)


FAULT = Fault(
    name="C13",
    title="uninitialised rows behind the last one reach the gradient of a weight",
    reference="NVIDIA/cudnn-frontend#624",
    expected="every_parameter_has_a_gradient",
    kinds=("all", "csa", "hca"),
    apply=_apply,
)
