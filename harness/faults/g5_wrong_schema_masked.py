"""G5: records of another schema become samples in which nothing is learned.

Mechanism: whatever is not found of a record is taken as empty, and nobody asks whether a label is left: every token is
masked, the run ends with exit code 0 and its gradient norm is 0. No public report is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.faults.in_data import in_data
from harness.faults.registry import Fault
from v4model.data import packed, sources
from v4model.data.recipe import Recipe
from v4model.data.sources import Located, Sample
from v4model.data.table import Losses, SampleTable, tabulate
from v4model.data.tokenizer import ASSISTANT, USER, Turn

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


# None of these names the place of a record, because none refuses one.
def _alpaca(record: dict[str, Any], *, where: str) -> list[Turn]:  # noqa: ARG001
    return [(USER, record.get("instruction", "")), (ASSISTANT, record.get("output", ""))]


def _chat(record: dict[str, Any], *, where: str) -> list[Turn]:  # noqa: ARG001
    # A role that is not known is no answer.
    roles = {ASSISTANT: ASSISTANT}
    return [(roles.get(turn.get("role", ""), USER), turn.get("content", "")) for turn in record.get("messages", [])]


def _checked(_turns: Sequence[Turn], *, where: str) -> None:
    """Takes every conversation."""


def _sample(tokens: tuple[int, ...], supervised: tuple[bool, ...], *, where: str) -> Sample:  # noqa: ARG001
    return Sample(tokens, supervised)


def _tabulated(samples: Iterable[Located], *, recipe: Recipe) -> tuple[SampleTable, Losses]:
    """The table without its question whether a label is left in each sample."""
    kept = [one for _, one in samples if isinstance(one, Sample)]
    learned = [("", Sample(one.tokens, (True,) * len(one.tokens))) for one in kept]
    table, losses = tabulate(learned, recipe=recipe)
    return replace(table, supervised=np.array([flag for one in kept for flag in one.supervised])), losses


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return in_data(
        subject,
        (sources, "alpaca_turns", _alpaca),
        (sources, "chat_turns", _chat),
        (sources, "check_turns", _checked),
        (sources, "_sample", _sample),
        (packed, "tabulate", _tabulated),
    )


FAULT = Fault(
    name="G5",
    title="records of another schema become fully masked samples",
    reference="no public report",
    expected="nothing_supervised_is_refused",
    kinds=("all",),
    apply=_apply,
)
