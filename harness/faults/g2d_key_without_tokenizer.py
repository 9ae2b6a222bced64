"""G2d: the cache key lacks the tokenizer (NVIDIA-NeMo/Megatron-Bridge#1867).

Mechanism: packs of another tokenizer's ids are given to a model that means something else by them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.in_data import keyed
from harness.faults.registry import Fault

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return keyed(subject, lambda recipe, source, _tokenizer: (recipe, source, "any"))


FAULT = Fault(
    name="G2d",
    title="the cache key lacks the tokenizer",
    reference="NVIDIA-NeMo/Megatron-Bridge#1867",
    expected="cache_gives_what_was_asked",
    kinds=("all",),
    apply=_apply,
)
