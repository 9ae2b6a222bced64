"""C1b: the trunk's last CSA layer cuts its windows at multiples of the ratio in the stream, the others do not.

Mechanism: that of C1 (radixark/miles#2038) in one layer, as where the layout is handed over in a loop and the last
layer is built beside it. All layers before it are right.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.falsified import pool_on_the_grid, with_pools
from harness.faults.patching import parts_of_trunk, told
from harness.faults.registry import Fault
from v4model.layers.attention import CSAAttention
from v4model.layers.context import PackContext
from v4model.pack.visibility import PoolVisibility

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _of_the_stream(context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    return pool_on_the_grid(context, pool, mixed=True)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    last = parts_of_trunk(subject, CSAAttention)[-1:]
    return told(last, lambda context: with_pools(context, _of_the_stream))


FAULT = Fault(
    name="C1b",
    title="windows follow the stream in the trunk's last CSA layer only",
    reference="radixark/miles#2038",
    expected="query_sees_only_its_sample",
    kinds=("all", "csa"),
    apply=_apply,
    strata=("start off the CSA grid",),
)
