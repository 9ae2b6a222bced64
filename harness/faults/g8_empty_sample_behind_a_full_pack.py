"""G8: a boundary is written twice where there is no padding (inclusionAI/AReaL#1103).

Mechanism: the padding's end is added to the boundaries whether or not there is any; a pack that is filled to its last
token then ends with a sample of length 0.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.in_data import in_data
from harness.faults.registry import Fault
from v4model import PackLayout
from v4model.data import PackedData

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


_healthy = PackedData.layout


def _with_the_end(packs: PackedData, pack: int) -> PackLayout:
    layout = _healthy(packs, pack)
    if layout.real_tokens < layout.total:
        return layout
    # Past the layout's own checks, which know no empty sample.
    written = object.__new__(PackLayout)
    for name, value in (("lengths", (*layout.lengths, 0)), ("starts", (*layout.starts, layout.total))):
        object.__setattr__(written, name, value)
    object.__setattr__(written, "total", layout.total)
    return written


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return in_data(subject, (PackedData, "layout", _with_the_end))


FAULT = Fault(
    name="G8",
    title="a full pack ends with a sample of length 0",
    reference="inclusionAI/AReaL#1103",
    expected="packing_keeps_every_sample",
    kinds=("all",),
    apply=_apply,
)
