"""C7: the window in progress counts as visible (vllm-project/tpu-inference#3536).

Mechanism: (t + 1) // ratio off by one: a query sees the row of the window it stands in, where the sample completes it,
and with it up to ratio - 1 tokens of its future.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from harness.faults.falsified import own, with_pools
from harness.faults.patching import told, trunk_and_mtp
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.pack.visibility import PoolVisibility

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _one_more(context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    ratio = pool.windows.ratio
    complete = own(context, context.layout.length // ratio)
    started = torch.where(context.sample >= 0, own(context, context.layout.position // ratio + 1), 0)
    return replace(pool, visible=torch.minimum(started, complete))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), lambda context: with_pools(context, _one_more))


FAULT = Fault(
    name="C7",
    title="a query sees the pooled row of the window it stands in",
    reference="vllm-project/tpu-inference#3536",
    expected="query_sees_no_future",
    kinds=("all", "csa", "hca"),
    apply=_apply,
)
