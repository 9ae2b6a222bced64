"""Windows are pooled from the pack's last one on, and their rows put in order afterwards."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.rewrites.registry import Ran, Rewrite, rewritten
from v4model.layers import compressor
from v4model.ops.pool import pool_overlapping_windows, pool_windows
from v4model.pack.windows import Windows

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _reversed(windows: Windows) -> Windows:
    return Windows(windows.ratio, windows.first_token.flip(0), windows.index.flip(0), windows.sample.flip(0))


def _pooled(kv: Tensor, gate: Tensor, position_bias: Tensor, *, windows: Windows) -> Tensor:
    return pool_windows(kv, gate, position_bias, windows=_reversed(windows)).flip(0)


def _pooled_overlapping(kv: Tensor, gate: Tensor, position_bias: Tensor, *, windows: Windows) -> Tensor:
    return pool_overlapping_windows(kv, gate, position_bias, windows=_reversed(windows)).flip(0)


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(
        subject, (compressor, "pool_windows", _pooled), (compressor, "pool_overlapping_windows", _pooled_overlapping)
    )


REWRITE = Rewrite(
    name="windows_last_first",
    title="windows are pooled from the last one on",
    apply=_apply,
    kinds=("all", "csa", "hca"),
)
