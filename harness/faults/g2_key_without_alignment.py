"""G2: the cache key lacks ranks and alignment (NVIDIA-NeMo/Megatron-Bridge#1867).

Mechanism: packs whose samples may start anywhere are taken for packs whose samples start at multiples. (The rank count
alone changes nothing here: it is the length of a row, which is asked of the recipe when an entry is read.)
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
    return keyed(subject, lambda recipe, source, tokenizer: (replace(recipe, align=1, ranks=1), source, tokenizer))


FAULT = Fault(
    name="G2",
    title="the cache key lacks ranks and alignment",
    reference="NVIDIA-NeMo/Megatron-Bridge#1867",
    expected="cache_gives_what_was_asked",
    kinds=("all",),
    apply=_apply,
)
