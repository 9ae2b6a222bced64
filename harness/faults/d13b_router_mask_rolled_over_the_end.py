"""D13b: the mask of MTP's router is rolled across the sample's end.

Mechanism: embeddings and labels mind boundaries, the mask of what the router counts is rolled as if the pack were one
sample: the last positions of a sample count where another sample follows, and not where it ends the pack. Every head's
loss is right to the bit.

Measured on packs of 60 to 200 tokens: the main loss does not move, the total by 9e-5 (median), 4e-4 at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.falsified import ahead_in_pack, own
from harness.faults.patching import Change, given, model_of
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.model.mtp import MTPDepth

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


@contextmanager
def _apply(subject: Subject) -> Iterator[None]:
    with ExitStack() as planted:
        for depth in model_of(subject).mtp:
            assert isinstance(depth, MTPDepth)
            planted.enter_context(given([depth.block], _counting(depth.depth)))
        yield


def _counting(steps: int) -> Change:
    def change(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        context = kwargs["context"]
        return args, {**kwargs, "counted": own(context, ahead_in_pack(context.layout, steps)) >= 0}

    return change


FAULT = Fault(
    name="D13b",
    title="the mask of MTP's router is rolled across the end of a sample",
    reference="no public report",
    expected="packed_equals_alone",
    kinds=KINDS,
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
