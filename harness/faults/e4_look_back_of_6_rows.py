"""E4: the look-back of CSA's compressor is one row too short.

Mechanism: of the halo it reads 6 rows where it needs 2 * 4 - 1 = 7; the rows are shared with the sliding window, whose
own reach must not hide it, so only the compressor's is cut. The missing row is the first token of the window before
one that ends on the shard's first token: a cut at any other place in its window shows nothing. No public report is
known.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from harness.faults.patching import given, parts
from harness.faults.registry import Fault
from v4model.layers.compressor import Compressor

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

_ROWS = 6


def look_back(subject: Subject, *, rows: int) -> AbstractContextManager[None]:
    """Compressors with overlap see `rows` tokens before the shard; 7 is right."""

    def cut(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        (x,), plan = args, kwargs["context"].plan
        return (x[max(x.shape[0] - plan.size - rows, 0) :],), dict(kwargs)

    return given([part for part in parts(subject, Compressor) if part.overlaps], cut)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return look_back(subject, rows=_ROWS)


FAULT = Fault(
    name="E4",
    title="the compressor looks back 6 rows before the shard instead of 7",
    reference="no public report",
    expected="cp_matches_one_rank",
    kinds=("all", "csa"),
    apply=_apply,
    ranks=(2, 4),
)
