"""G7: every zero among the positions starts a sample (axolotl-ai-cloud/axolotl#2739).

Mechanism: positions padded with zeros are read like any others, and each zero of the padding becomes a sample of one
token, thousands of them in a long row.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.in_data import in_data
from harness.faults.registry import Fault
from v4model import PackLayout
from v4model.pack.layout import Boundaries

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


_healthy = PackLayout.from_position_ids


def _zeros_start(position_ids: Boundaries, *, padding: int | None = None) -> PackLayout:  # noqa: ARG001 - not asked for
    return _healthy(position_ids, padding=0)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return in_data(subject, (PackLayout, "from_position_ids", _zeros_start))


FAULT = Fault(
    name="G7",
    title="every zero of padded positions starts a sample",
    reference="axolotl-ai-cloud/axolotl#2739",
    expected="every_spelling_names_the_same_samples",
    kinds=("all",),
    apply=_apply,
)
