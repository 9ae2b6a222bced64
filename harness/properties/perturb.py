"""Ways to perturb chosen tokens of a pack without changing any shape."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.properties.measure import generator
from v4model import Pack

if TYPE_CHECKING:
    from harness.case import Case
    from harness.subjects.protocol import Observation, Subject

LARGE = 1e5
"""Poison that stays finite when squared, summed and multiplied a few times, unlike 1e30."""


@dataclass(frozen=True)
class Inputs:
    """What one run of a subject is given; embeddings [T, D] None means its own lookup."""

    pack: Pack
    embeddings: Tensor | None = None

    def observe(self, subject: Subject) -> Observation:
        """The run, without a graph."""
        with torch.no_grad():
            return subject.observe(self.pack, embeddings=self.embeddings)


@dataclass(frozen=True)
class Manner:
    """One way to perturb tokens: other token ids, or other embeddings under the same ids.

    name: for the witness ("other token ids"). other: ids [T] or embeddings [T, D] that marked tokens get.
    embeddings: the unperturbed ones [T, D], None if ids are replaced.
    """

    name: str
    pack: Pack
    other: Tensor
    embeddings: Tensor | None = None

    def applied(self, marked: Tensor) -> Inputs:
        """The inputs with the marked tokens ([T] bool) perturbed."""
        if self.embeddings is not None:
            return Inputs(self.pack, torch.where(marked[:, None], self.other, self.embeddings))
        tokens = torch.where(marked, self.other, self.pack.tokens)
        return Inputs(Pack(tokens, layout=self.pack.layout, supervised=self.pack.supervised))


def other_tokens(case: Case, pack: Pack, *, vocab_size: int) -> Manner:
    """Every marked token becomes another id of the vocabulary."""
    step = torch.randint(1, vocab_size, pack.tokens.shape, generator=generator(case, "other tokens"))
    return Manner("other token ids", pack, (pack.tokens + step) % vocab_size)


def large_embeddings(case: Case, pack: Pack, embeddings: Tensor) -> Manner:
    """Marked embeddings become large finite numbers, which make small what else a sum holds."""
    noise = torch.randn(embeddings.shape, generator=generator(case, "large embeddings"), dtype=torch.float64)
    return Manner("large embeddings", pack, (LARGE * noise).to(embeddings.dtype), embeddings)


def nan_embeddings(pack: Pack, embeddings: Tensor) -> Manner:
    """Marked embeddings become NaN, which also shows what is only multiplied by 0."""
    return Manner("NaN embeddings", pack, torch.full_like(embeddings, math.nan), embeddings)
