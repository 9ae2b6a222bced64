"""D11: MTP's embeddings are all zero (NVIDIA-NeMo/Automodel#3570, review: the loss moves by .22% only).

Mechanism: the embeddings ahead are masked by what is not a mask of theirs, and every position joins zeros to the
streams. Samples alone are as wrong as packed ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from harness.faults.patching import given, model_of
from harness.faults.registry import Fault
from harness.kinds import KINDS

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _zero(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    streams, embeddings = args
    return (streams, torch.zeros_like(embeddings)), dict(kwargs)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return given(model_of(subject).mtp, _zero)


FAULT = Fault(
    name="D11",
    title="MTP's embeddings are all zero",
    reference="NVIDIA-NeMo/Automodel#3570",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
)
