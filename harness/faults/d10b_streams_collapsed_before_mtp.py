"""D10b: the residual streams are collapsed before MTP (volcengine/verl#7328).

Mechanism: MTP starts from what the trunk hands to its head, collapsed to one stream and normed, copied into all of
them, instead of from the streams before that. Samples alone are as wrong as packed ones.
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


def _apply(subject: Subject) -> AbstractContextManager[None]:
    model = model_of(subject)

    def collapsed(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        streams, *others = args
        return (model.trunk.leave(streams, recompute=False)[:, None, :].expand_as(streams), *others), dict(kwargs)

    return given(model.mtp[:1], collapsed)


FAULT = Fault(
    name="D10b",
    title="MTP starts from the collapsed and normed streams",
    reference="volcengine/verl#7328",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
)
