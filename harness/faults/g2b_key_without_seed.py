"""G2b: the cache key lacks the seed (NVIDIA-NeMo/Megatron-Bridge#1867).

Mechanism: whoever asks for another order of samples gets the first one again.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.faults.in_data import keyed
from harness.faults.registry import Fault

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return keyed(subject, lambda recipe, source, tokenizer: (replace(recipe, seed=0), source, tokenizer))


FAULT = Fault(
    name="G2b",
    title="the cache key lacks the seed",
    reference="NVIDIA-NeMo/Megatron-Bridge#1867",
    expected="cache_gives_what_was_asked",
    kinds=("all",),
    apply=_apply,
)
