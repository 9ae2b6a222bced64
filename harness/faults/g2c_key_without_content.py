"""G2c: the cache key lacks the content of the file (NVIDIA-NeMo/Megatron-Bridge#1867).

Mechanism: packs are kept under the name of a file; after the file has changed the old ones are given.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.in_data import keyed
from harness.faults.registry import Fault

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return keyed(subject, lambda recipe, _source, tokenizer: (recipe, "by its name", tokenizer))


FAULT = Fault(
    name="G2c",
    title="the cache key lacks the content of the file",
    reference="NVIDIA-NeMo/Megatron-Bridge#1867",
    expected="cache_gives_what_was_asked",
    kinds=("all",),
    apply=_apply,
)
