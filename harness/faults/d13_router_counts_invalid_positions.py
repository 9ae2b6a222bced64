"""D13: MTP's router counts with the trunk's mask.

Mechanism: the mask of positions that make the balance loss and the counts is handed on as the trunk has it, not shifted
with the embeddings: depth k counts the last k positions of each sample, which embed nothing. Token ids, which the row
of the zoo also tells of, reach no router here: MTP blocks have learned ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from harness.faults.patching import given, parts_of_mtp
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.model.block import Block

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _of_the_trunk(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, {**kwargs, "counted": kwargs["context"].sample >= 0}


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return given(parts_of_mtp(subject, Block), _of_the_trunk)


FAULT = Fault(
    name="D13",
    title="MTP's router counts positions that embed nothing",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
)
