"""E12: boundaries are derived after the cut, from the positions on each rank (PrimeIntellect-ai/prime-rl#2392).

Mechanism: a sample begins where the position is 0, and at the first token of every rank: attention knows a sample that
reaches over a cut as two. Positions themselves, router statistics, labels and MTP's shift are right.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.faults.on_ranks import told_on_ranks, with_layout
from harness.faults.patching import parts
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model import PackLayout
from v4model.layers.attention import Attention
from v4model.layers.context import PackContext
from v4model.pack.shard import ShardPlan

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def cut_at_ranks(plan: ShardPlan) -> PackLayout:
    """The layout with every sample parted at the cuts inside it."""
    lengths, starts = [], []
    for start, length in zip(plan.layout.starts, plan.layout.lengths, strict=True):
        inside = [cut for cut in range(0, plan.layout.total, plan.size) if start < cut < start + length]
        for begin, end in zip([start, *inside], [*inside, start + length], strict=True):
            starts.append(begin)
            lengths.append(end - begin)
    return PackLayout(tuple(lengths), tuple(starts), plan.layout.total)


def _derived(context: PackContext) -> PackContext:
    return replace(with_layout(context, cut_at_ranks(context.plan)), key_position=context.key_position)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told_on_ranks(parts(subject, Attention), _derived)


FAULT = Fault(
    name="E12",
    title="boundaries are derived from each rank's positions: a sample begins anew at every cut",
    reference="PrimeIntellect-ai/prime-rl#2392",
    expected="cp_matches_one_rank",
    kinds=KINDS,
    apply=_apply,
    ranks=(2, 4),
)
