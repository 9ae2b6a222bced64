"""A2: a trunk that lost its layout runs on instead of refusing (AMD-AGI/Primus#1062).

Mechanism: where no descriptor arrives, the check that would refuse a padded pack has nothing to check either. The whole
trunk then takes the row for one sample, and its padding for tokens of it: they are computed, seen and counted. Labels
and MTP's own layout are right.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.falsified import as_one_sample
from harness.faults.patching import model_of, told
from harness.faults.registry import Fault
from harness.kinds import KINDS

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told([model_of(subject).trunk], as_one_sample)


FAULT = Fault(
    name="A2",
    title="the trunk loses the layout and, with it, the check for it: the row is one sample, padding too",
    reference="AMD-AGI/Primus#1062",
    expected="padding_changes_nothing",
    kinds=KINDS,
    apply=_apply,
)
