"""B8: the RoPE table is too short, and positions behind its end are clamped to the last row (radixark/miles#1382).

Mechanism: the table has rows for two sliding windows; a lookup further on gives the last of them instead of an error.
Tokens there have no distance from each other any more. Shorter samples are right.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.falsified import with_pool_positions
from harness.faults.patching import told, trunk_and_mtp
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext
from v4model.pack.windows import Windows

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _last_row(context: PackContext) -> int:
    return 2 * context.config.sliding_window - 1


def _pooled(context: PackContext, windows: Windows) -> Tensor:
    return windows.position.clamp_max(_last_row(context))


def _clamped(context: PackContext) -> PackContext:
    position = context.key_position.clamp_max(_last_row(context))
    return with_pool_positions(replace(context, key_position=position), _pooled)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), _clamped)


FAULT = Fault(
    name="B8",
    title="the RoPE table is too short and positions are clamped to its last row",
    reference="radixark/miles#1382",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
    strata=("sample much longer than the sliding window",),
)
