"""Every parameter is reached: a missing gradient edge stops an optimizer at its second step, or hangs a reducer."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from harness.properties import Property, register
from harness.properties.measure import draw
from harness.tolerance import EXACT
from harness.verdict import Verdict
from harness.witness import Witness
from v4model import Pack, PackLayout

if TYPE_CHECKING:
    from harness.case import Case
    from harness.corpus import Corpus
    from harness.subjects.protocol import Subject

NAME = "every_parameter_has_a_gradient"

_LONGEST_SHORT = 3
"""Shorter than the smallest ratio, 4: such a sample has no complete window at all."""


def _every_parameter(subject: Subject, case: Case, corpus: Corpus) -> Verdict:
    for description, pack in _packs(case, corpus):
        leaves = dict(subject.parameters())
        loss = subject.observe(pack).losses["loss"]
        if not bool(loss.isfinite()):
            return _violated(None, f"a loss that is not finite on {description}")
        trainable = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
        found = torch.autograd.grad(loss, list(trainable.values()), allow_unused=True)
        grads = dict(zip(trainable, found, strict=True))
        for name in leaves:
            grad = grads.get(name)
            if grad is None:
                what = "no gradient edge" if name in trainable else "a parameter that is frozen"
                return _violated(name, f"{what} on {description}")
            if not bool(grad.isfinite().all()):
                return _violated(name, f"a gradient that is not finite on {description}")
    return Verdict.holds(error=0.0, bound=EXACT)


def _packs(case: Case, corpus: Corpus) -> Iterator[tuple[str, Pack]]:
    """The case, and two small packs, each of which leaves some part of the model without anything to do."""
    given = case.pack(corpus)
    choose = draw(case, NAME)
    yield "the case's layout", given
    for small in choose.sample([_short_samples, _ones, _nothing_supervised], 2):
        yield small(given, choose)


def _short_samples(given: Pack, choose: random.Random) -> tuple[str, Pack]:
    lengths = [choose.randint(1, _LONGEST_SHORT) for _ in range(choose.randint(1, 4))]
    layout = PackLayout.from_lengths(lengths, total=sum(lengths) + choose.randint(0, 3))
    return f"samples of {lengths} tokens, which have no complete window", _cut(given, layout)


def _ones(given: Pack, choose: random.Random) -> tuple[str, Pack]:
    count = choose.randint(1, 5)
    return f"{count} samples of one token, which have no label", _cut(given, PackLayout.from_lengths([1] * count))


def _nothing_supervised(given: Pack, choose: random.Random) -> tuple[str, Pack]:
    lengths = [choose.randint(1, 20) for _ in range(choose.randint(1, 2))]
    pack = _cut(given, PackLayout.from_lengths(lengths, total=sum(lengths) + choose.randint(1, 3)))
    nothing = torch.zeros_like(pack.supervised)
    described = f"samples of {lengths} tokens with padding at the tail and nothing supervised"
    return described, Pack(pack.tokens, layout=pack.layout, supervised=nothing)


def _cut(pack: Pack, layout: PackLayout) -> Pack:
    """Another layout filled with the ids of a pack, from its first sample on and over again; every token supervised."""
    ids = pack.tokens[pack.layout.real]
    return Pack(ids[torch.arange(layout.total) % len(ids)], layout=layout)


def _violated(parameter: str | None, what: str) -> Verdict:
    return Verdict.violated(
        Witness(property=NAME, branch="gradient", layer=parameter, what=what, magnitude=math.inf, bound=EXACT)
    )


register(
    Property(
        NAME,
        "the loss reaches every parameter with a finite gradient, whatever the layout leaves without work",
        _every_parameter,
        rounded=True,
    )
)
