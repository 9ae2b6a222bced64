"""B5: one RoPE base serves all kinds of layers (ml-explore/mlx-lm#1189).

Mechanism: compressed layers rotate queries, local keys and pooled rows by the base of the dense ones. Each layer is
consistent in itself, alone as in a pack.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.faults.patching import told, trunk_and_mtp
from harness.faults.registry import Fault
from v4model.layers.context import PackContext

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _one_base(context: PackContext) -> PackContext:
    config = context.config
    return replace(context, config=replace(config, compress_rope_theta=config.rope_theta))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), _one_base)


FAULT = Fault(
    name="B5",
    title="compressed layers rotate by the RoPE base of dense ones",
    reference="ml-explore/mlx-lm#1189",
    expected="matches_plain_reading",
    kinds=("all", "csa", "hca"),
    apply=_apply,
)
