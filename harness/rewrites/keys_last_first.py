"""Every query reads its keys from the last one on: sums over keys run the other way."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.rewrites.registry import Ran, Rewrite, rewritten
from v4model.ops import attend
from v4model.ops.attend import _attend_block

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _last_first(q: Tensor, table: Tensor, sinks: Tensor, *, rows: Tensor, first_picked: int) -> tuple[Tensor, Tensor]:
    out, mass = _attend_block(q, table, sinks, rows=rows.flip(1), first_picked=0)
    return out, mass.flip(1)[:, first_picked:]


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, (attend, "_attend_block", _last_first))


REWRITE = Rewrite(
    name="keys_last_first",
    title="every query reads its keys from the last one on",
    apply=_apply,
)
