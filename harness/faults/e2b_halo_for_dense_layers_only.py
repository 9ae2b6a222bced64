"""E2b: dense layers get their halo, layers with pooled rows get none (AMD-AGI/Primus#994).

Mechanism: in CSA and HCA layers nothing before the shard is there, neither for the local window nor for the windows
that began before it: their slots read zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from unittest import mock

from harness.faults.patching import parts
from harness.faults.registry import Fault
from v4model.layers.attention import Attention

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


@contextmanager
def _apply(subject: Subject) -> Iterator[None]:
    with ExitStack() as stack:
        for layer in parts(subject, Attention):
            if layer.ratio:
                stack.enter_context(mock.patch.object(layer, "reach", 0))
        yield


FAULT = Fault(
    name="E2b",
    title="dense layers have a halo, compressed layers have none",
    reference="AMD-AGI/Primus#994",
    expected="cp_matches_one_rank",
    kinds=("all", "csa", "hca"),
    apply=_apply,
    ranks=(2, 4),
)
