"""C5: padding tokens are pooled into rows (huggingface/transformers#45938).

Mechanism: the compressor cuts whatever it is given into windows and asks no mask. Behind a sample that does no harm,
since no real token sees the row that padding completes; before one (a left-padded batch, a slot whose padding stands in
front) the first windows hold padding, and all later ones are cut at other places than without it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.corners import INTERIOR_PADDING
from harness.faults.falsified import pool_from, with_pools
from harness.faults.patching import told, trunk_and_mtp
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.pack.visibility import PoolVisibility

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _from_the_padding(context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    layout = context.layout
    ends = [start + length for start, length in zip(layout.starts, layout.lengths, strict=True)]
    return pool_from(context, pool, [0, *ends[:-1]])


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), lambda context: with_pools(context, _from_the_padding))


FAULT = Fault(
    name="C5",
    title="padding before a sample is pooled into its rows",
    reference="huggingface/transformers#45938",
    expected="padding_changes_nothing",
    kinds=("all", "csa", "hca"),
    apply=_apply,
    strata=INTERIOR_PADDING,
)
