"""F4: the hash router of every rank is given the ids of the first slice (vllm-project/afd-plugin#301).

Mechanism: ids are sliced by another rank's bounds than the hidden rows are: right on the first rank, another token's
experts on all others.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.faults.on_ranks import told_on_ranks
from harness.faults.patching import parts
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext
from v4model.layers.moe import MoE
from v4model.layers.router import HashRouter

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _first_slice(context: PackContext) -> PackContext:
    plan = context.plan
    ids = context.ranks.cp.all_rows(context.tokens, counts=[plan.size] * plan.ranks, where="ids of another slice")
    return replace(context, tokens=ids[: plan.size])


def _apply(subject: Subject) -> AbstractContextManager[None]:
    hashed = [moe for moe in parts(subject, MoE) if isinstance(moe.gate, HashRouter)]
    return told_on_ranks(hashed, _first_slice)


FAULT = Fault(
    name="F4",
    title="hash routers get the token ids of another rank's slice",
    reference="vllm-project/afd-plugin#301",
    expected="cp_matches_one_rank",
    kinds=KINDS,
    apply=_apply,
    ranks=(2, 4),
)
