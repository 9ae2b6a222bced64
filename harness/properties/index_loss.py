"""The KL term teaches the indexer and nothing else.

Its value says nothing of that: a target or an input that is not detached leaves every number of the forward pass as it
is, packed and alone, and moves gradients only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from harness.properties import Property, register
from harness.properties.measure import tokens_of
from harness.properties.tally import Tally
from harness.tolerance import EXACT
from harness.verdict import Verdict

if TYPE_CHECKING:
    from harness.case import Case
    from harness.corpus import Corpus
    from harness.subjects.protocol import Subject

NAME = "kl_reaches_only_the_indexer"

_INDEXER = "indexer"
"""What every parameter of an indexer has in its dotted name."""


def of_indexer(names: Iterable[str]) -> set[str]:
    """Those of some parameters that belong to an indexer, by their names."""
    return {name for name in names if _INDEXER in name.split(".")}


def _reaches_only_the_indexer(subject: Subject, case: Case, corpus: Corpus) -> Verdict:
    pack, leaves = case.pack(corpus), dict(subject.parameters())
    indexer = of_indexer(leaves)
    if not indexer:
        return Verdict.vacuous("no parameter is named after an indexer")
    embeddings = subject.embeddings(pack).requires_grad_()
    kl = subject.observe(pack, embeddings=embeddings).sums["kl"]
    if not kl.requires_grad:
        return Verdict.vacuous("the KL term has no gradient at all")
    of_embeddings, *found = torch.autograd.grad(kl, [embeddings, *leaves.values()], allow_unused=True)
    grads = {name: grad for name, grad in zip(leaves, found, strict=True) if grad is not None}
    tally = Tally(NAME, bound=EXACT, layout=pack.layout)
    if of_embeddings is not None:
        tokens = tokens_of(torch.ones(pack.layout.total, dtype=torch.bool))
        what = "the KL term has a gradient at the embedding"
        tally.zeros(of_embeddings, tokens=tokens, depth=0, what=what, branch="gradient")
    for name in grads.keys() - indexer:
        what = "the KL term has a gradient at a parameter of another part"
        tally.bits(grads[name] + 0.0, torch.zeros_like(grads[name]), what=what, branch="gradient", layer=name)
    if not tally.violated and not any(bool(grads[name].any()) for name in grads.keys() & indexer):
        return Verdict.vacuous("no query has two rows to choose from: there is nothing to teach")
    return tally.verdict()


register(
    Property(
        NAME,
        "the KL term's gradient is exactly 0 at every embedding and every parameter but the indexer's",
        _reaches_only_the_indexer,
        kinds=("all", "csa"),
        rounded=True,
    )
)
