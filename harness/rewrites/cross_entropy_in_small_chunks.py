"""The linear cross entropy takes three tokens at a time."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.rewrites.registry import Ran, Rewrite, rewritten
from v4model.model import head
from v4model.ops.ce import linear_cross_entropy

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


_TOKENS = 3


def _nll(hidden: Tensor, weight: Tensor, *, labels: Tensor, chunk_tokens: int) -> Tensor:
    return linear_cross_entropy(hidden, weight, labels=labels, chunk_tokens=min(chunk_tokens, _TOKENS))


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, (head, "linear_cross_entropy", _nll))


REWRITE = Rewrite(
    name="cross_entropy_in_small_chunks",
    title="the cross entropy takes three tokens at a time",
    apply=_apply,
)
