"""D10: the residual streams are averaged before MTP (volcengine/verl#7328).

Mechanism: every MTP depth starts from the mean of the K streams, copied into all of them, instead of from the streams.
Samples alone are as wrong as packed ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from harness.faults.patching import given, model_of
from harness.faults.registry import Fault
from harness.kinds import KINDS

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def averaged(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    streams, *others = args
    return (streams.mean(1, keepdim=True).expand_as(streams), *others), dict(kwargs)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return given(model_of(subject).mtp, averaged)


FAULT = Fault(
    name="D10",
    title="the residual streams are averaged before MTP",
    reference="volcengine/verl#7328",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
)
