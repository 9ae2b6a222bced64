"""Loss parity as the field uses it, against the healthy model on the same pack: a reference nobody has in practice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness.matrix.result import Parity

if TYPE_CHECKING:
    from torch import Tensor

    from harness.subjects.protocol import Subject
    from v4model import Pack


@dataclass(frozen=True, eq=False)
class Output:
    """What loss parity compares: the loss, and the trunk's logits [T, V]."""

    loss: Tensor
    logits: Tensor

    @classmethod
    def of(cls, subject: Subject, pack: Pack) -> Output:
        """A forward pass of a subject."""
        with torch.no_grad():
            seen = subject.observe(pack)
        return cls(seen.losses["loss"], seen.depths[0].values)

    def parity(self, other: Output) -> Parity:
        """How far the other output is from this one."""
        cosine = torch.nn.functional.cosine_similarity(self.logits.reshape(-1), other.logits.reshape(-1), dim=0)
        return Parity(loss=float((other.loss - self.loss).abs() / self.loss.abs()), cosine=float(cosine))
