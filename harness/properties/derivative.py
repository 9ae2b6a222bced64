"""Gradients are the derivatives of what the forward pass computes.

Every other property compares gradients of one backward pass with those of another; a backward pass that is wrong in the
same way packed, alone and on every rank passes them all. Here the other side is the forward pass itself: the slope of
the sums along a random direction, by differences in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.properties import Property, register
from harness.properties.index_loss import of_indexer
from harness.properties.measure import generator
from harness.properties.runs import gradients
from harness.subjects.support import KL, unsupported_by
from harness.tolerance import DIFFERENCES_F64
from harness.verdict import Verdict
from harness.witness import Witness

if TYPE_CHECKING:
    from harness.case import Case
    from harness.corpus import Corpus
    from harness.subjects.protocol import Observation, Subject
    from v4model import Pack

NAME = "gradients_are_derivatives"

_STEPS = (1e-6, 1e-7)
"""Relative to a parameter's own size. The second is asked where the first is past the bound."""


@dataclass(frozen=True)
class _Question:
    """A scalar of the sums, and the parameters along which its slope is asked for."""

    what: str
    names: tuple[str, ...]
    of_index_loss: bool

    def scalar(self, observation: Observation) -> Tensor:
        sums = sorted((name, value) for name, value in observation.sums.items() if (name == "kl") is self.of_index_loss)
        return torch.stack([value.reshape(()) / (1 + place) for place, (_, value) in enumerate(sums)]).sum()


def _are_derivatives(subject: Subject, case: Case, corpus: Corpus) -> Verdict:
    pack, leaves = case.pack(corpus), dict(subject.parameters())
    indexer = of_indexer(leaves)
    # The KL term's target and inputs are held fixed, so it has a derivative along the indexer only; and nothing else
    # depends on the indexer but by its choices.
    questions = [_Question("the losses", tuple(leaves.keys() - indexer), of_index_loss=False)]
    if indexer and KL not in unsupported_by(subject):
        questions.append(_Question("the KL term", tuple(sorted(indexer)), of_index_loss=True))
    worst = 0.0
    for question in questions:
        own = {name: leaves[name] for name in sorted(question.names)}
        error, leaps = _asked(subject, case, pack, question, own)
        if error > DIFFERENCES_F64 and leaps:
            return Verdict.undecided(f"choices flip on both sides within {_STEPS[-1]:g} of the parameters")
        if error > DIFFERENCES_F64:
            what = f"the slope of {question.what} along a random direction is not what its gradient says"
            return Verdict.violated(
                Witness(property=NAME, branch="gradient", what=what, magnitude=error, bound=DIFFERENCES_F64)
            )
        worst = max(worst, error)
    return Verdict.holds(error=worst, bound=DIFFERENCES_F64)


def _asked(
    subject: Subject, case: Case, pack: Pack, question: _Question, leaves: Mapping[str, Tensor]
) -> tuple[float, bool]:
    """The relative error of the gradient's slope, and whether the slopes to both sides differ at the last step."""
    scalar = question.scalar(subject.observe(pack))
    if not scalar.requires_grad:
        return 0.0, False
    grads = gradients(scalar, leaves)
    source = generator(case, f"{NAME} {question.what}")
    ways = {name: _way(leaf, grads[name], source) for name, leaf in leaves.items()}
    shares = torch.stack([(grads[name] * way).sum() for name, way in ways.items()])
    # Where the slope is far smaller than the sums, their rounding is what differences measure.
    floored = max(float(shares.square().sum().sqrt()), 1e-3 * abs(float(scalar.detach())), 1e-300)
    slope = float(shares.sum())
    error, leaps = 0.0, False
    for step in _STEPS:
        # Kinks, and choices that flip (top-k, an expert), lie on one side; the gradient is the slope of the other.
        sides = [_slope(subject, pack, question, leaves, ways, step=way * step, before=scalar) for way in (1, -1)]
        error = min(abs(slope - side) for side in sides) / floored
        leaps = abs(sides[0] - sides[1]) > DIFFERENCES_F64 * floored
        if error <= DIFFERENCES_F64:
            break
    return error, leaps


def _way(leaf: Tensor, grad: Tensor, source: torch.Generator) -> Tensor:
    """A random direction in which a parameter has its share of the slope, whatever the size of its gradient.

    Never more than its own size, or a unit where it is 0.
    """
    noise = torch.randn(leaf.shape, generator=source, dtype=torch.float64).to(leaf)
    size = float(leaf.detach().square().mean().sqrt()) or 1.0
    norm = float(grad.norm())
    return noise * (min(1.0 / norm, size) if norm else size)


def _slope(
    subject: Subject,
    pack: Pack,
    question: _Question,
    leaves: Mapping[str, Tensor],
    ways: Mapping[str, Tensor],
    *,
    step: float,
    before: Tensor,
) -> float:
    with torch.no_grad(), _moved(leaves, ways, by=step):
        slope = float(question.scalar(subject.observe(pack)) - before.detach()) / step
    return slope if math.isfinite(slope) else math.inf


@contextmanager
def _moved(leaves: Mapping[str, Tensor], ways: Mapping[str, Tensor], *, by: float) -> Iterator[None]:
    """The parameters moved along their ways, and the same bits as before afterwards."""
    before = {name: leaf.detach().clone() for name, leaf in leaves.items()}
    try:
        for name, leaf in leaves.items():
            leaf.add_(ways[name], alpha=by)
        yield
    finally:
        for name, leaf in leaves.items():
            leaf.copy_(before[name])


register(
    Property(
        NAME,
        "the slope of the losses along a random direction of the parameters is what their gradients say (<= 1e-4)",
        _are_derivatives,
    )
)
