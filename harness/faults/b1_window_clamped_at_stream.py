"""B1: the local window is clamped at the start of the stream, not of the sample (radixark/miles#2038).

Mechanism: a real token's window begins at max(0, t - window + 1) in the pack, so that the first tokens of a sample read
the last ones of the sample before it, or padding.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.falsified import tokens_of
from harness.faults.patching import told, trunk_and_mtp
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def clamped_at_stream(context: PackContext, rows: Tensor) -> PackContext:
    """The context with the windows of the real tokens among `rows` [n] clamped at the start of the stream."""
    old = context.visibility
    first = (tokens_of(context) - old.window + 1).clamp_min(0)
    local_lo = torch.where(rows & (context.sample >= 0), first, old.local_lo)
    return replace(context, visibility=replace(old, local_lo=local_lo))


def _everywhere(context: PackContext) -> PackContext:
    return clamped_at_stream(context, context.sample >= 0)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), _everywhere)


FAULT = Fault(
    name="B1",
    title="the local window is clamped at the start of the stream, not of the sample",
    reference="radixark/miles#2038",
    expected="query_sees_only_its_sample",
    kinds=KINDS,
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
