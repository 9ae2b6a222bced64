"""Which embeddings the values depend on, by gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.properties.measure import generator
from harness.subjects.missing import note_what_is_missing

if TYPE_CHECKING:
    from harness.case import Case
    from harness.subjects.protocol import Observation, Subject
    from v4model import Pack


@contextmanager
def _frozen(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Within, graphs reach no parameter: nobody asks for those gradients, and they are a third of a backward pass."""
    leaves = [parameter for parameter in parameters if parameter.requires_grad]
    for leaf in leaves:
        leaf.requires_grad = False
    try:
        yield
    finally:
        for leaf in leaves:
            leaf.requires_grad = True


class Influence:
    """One forward of a pack with its graph kept, and a backward pass a question.

    A random projection of the values stands for all of them: where every row's gradient is exactly 0 the sum is exactly
    0, and where one is not it cancels with probability 0.
    """

    def __init__(self, subject: Subject, case: Case, pack: Pack) -> None:
        self._subject, self._pack = subject, pack
        self.embeddings = subject.embeddings(pack).detach()
        self._leaf = self.embeddings.clone().requires_grad_()
        self.observation = self.observed()
        note_what_is_missing(self.observation, subject.config)
        source = generator(case, "projection")
        self._projections = [
            torch.randn(depth.values.shape, generator=source, dtype=torch.float64).to(depth.values.dtype)
            for depth in self.observation.depths
        ]

    def observed(self) -> Observation:
        """One forward pass, its graph kept."""
        with _frozen(self._subject.parameters().values()):
            return self._subject.observe(self._pack, embeddings=self._leaf)

    def reach(self, rows: Sequence[Tensor]) -> Tensor:
        """[T] largest gradient at each token's embedding from the rows ([T] bool a depth); NaN counts as infinite."""
        values = [depth.values for depth in self.observation.depths]
        weights = [
            torch.where(mask[:, None], projection, 0.0)
            for mask, projection in zip(rows, self._projections, strict=True)
        ]
        found: Sequence[Tensor | None] = torch.autograd.grad(
            values, self._leaf, grad_outputs=weights, retain_graph=True, allow_unused=True
        )
        grad = found[0]
        if grad is None:
            return self._leaf.detach().new_zeros(len(self._leaf))
        return grad.abs().nan_to_num(nan=math.inf, posinf=math.inf).amax(dim=1)

    def reach_of(self, depth: int, tokens: Tensor) -> Tensor:
        """[T] as `reach`, from the values of some tokens (LongTensor) at one depth."""
        rows = [torch.zeros(len(self._leaf), dtype=torch.bool) for _ in self._projections]
        rows[depth][tokens] = True
        return self.reach(rows)
