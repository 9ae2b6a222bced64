"""Which label each position has, which labels count, and how the losses are made of them.

The labels here are written down a second time, with plain loops over the lengths: nothing of the model's shifting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.properties import Property, register
from harness.properties.measure import generator, place_of
from harness.properties.rounding import Alike, persisting
from harness.subjects.protocol import Unsupported
from harness.subjects.support import TERMS, unsupported_by
from harness.tolerance import EXACT
from v4model import Pack

if TYPE_CHECKING:
    from harness.case import Case
    from harness.corpus import Corpus
    from harness.properties.tally import Tally
    from harness.subjects.protocol import Observation, Subject
    from harness.verdict import Verdict
    from v4model import PackLayout, V4Config

NAME = "labels_stay_inside"


@dataclass(frozen=True)
class Label:
    """Token `query` predicts token `of`."""

    query: int
    of: int


def labels_of(layout: PackLayout, *, depth: int) -> list[Label]:
    """Position t of a sample predicts its position t + depth + 1, if the sample has one."""
    labels = []
    for start, length in zip(layout.starts, layout.lengths, strict=True):
        for position in range(length):
            if position + depth + 1 < length:
                labels.append(Label(start + position, start + position + depth + 1))
    return labels


def _labels_stay_inside(subject: Subject, case: Case, corpus: Corpus) -> Verdict:
    lacking = unsupported_by(subject)
    if TERMS in lacking:
        raise Unsupported(lacking[TERMS])
    pack = case.pack(corpus)
    tally = Alike(subject, case, pack, embeddings=None).tally(NAME, layout=pack.layout)
    # The text's own mask, one that switches at any token, and none at all.
    for number, mask in enumerate((pack.supervised, _random_mask(case, pack), torch.zeros_like(pack.supervised))):
        masked = Pack(pack.tokens, layout=pack.layout, supervised=mask)
        with torch.no_grad():
            observation = subject.observe(masked)
        if number == 0:
            _check_nll(tally, observation, masked)
        _check_losses(tally, observation, masked, subject.config)
    return tally.verdict()


def _random_mask(case: Case, pack: Pack) -> Tensor:
    return torch.rand(pack.tokens.shape, generator=generator(case, "mask")) < 0.5


def _check_nll(tally: Tally, observation: Observation, pack: Pack) -> None:
    layout = pack.layout
    for depth, given in enumerate(observation.depths):
        # In float64, whatever the values are: this side of the comparison adds no rounding of its own.
        log_share = torch.log_softmax(given.values.double(), dim=-1)
        expected = log_share.new_zeros(given.nll.shape)
        labelled = torch.zeros(layout.total, dtype=torch.bool)
        for label in labels_of(layout, depth=depth):
            expected[label.query] = -log_share[label.query, int(pack.tokens[label.of])]
            labelled[label.query] = True
        what = "the nll is not that of the token further on in the sample"
        tally.rows(given.nll, expected, tokens=torch.arange(layout.total), depth=depth, what=what, branch="label")
        unlabelled = (~labelled).nonzero()[:, 0]
        what = "an nll where the sample has no label"
        tally.zeros(given.nll[unlabelled], tokens=unlabelled, depth=depth, what=what, branch="label")
        _check_valid(tally, given.valid, layout, depth=depth)


def _check_valid(tally: Tally, valid: Tensor, layout: PackLayout, *, depth: int) -> None:
    for token in range(layout.total):
        sample, position = int(layout.sample[token]), int(layout.position[token])
        expected = sample >= 0 and position + depth < layout.lengths[sample]
        if bool(valid[token]) != expected:
            tally.fail(
                what="the position's validity is wrong",
                branch="label",
                magnitude=1.0,
                bound=EXACT,
                depth=depth,
                query=place_of(layout, token),
                values=(f"{bool(valid[token])}", f"{expected}"),
            )
            return


def _check_losses(tally: Tally, observation: Observation, pack: Pack, config: V4Config) -> None:
    """The mask belongs to the label token; a loss is the sum over all labels that count by their number."""
    losses = observation.losses
    total = losses["balance"] + losses["kl"]
    depths = len(observation.depths) - 1
    for depth, given in enumerate(observation.depths):
        name = f"mtp{depth}" if depth else "main"
        counted = [label.query for label in labels_of(pack.layout, depth=depth) if bool(pack.supervised[label.of])]
        nll_sum = given.nll[counted].sum()
        tally.counts({name: observation.counts[name]}, {name: len(counted)}, than="that of supervised labels")
        tally.scalar(observation.sums[name], nll_sum, depth=depth, what="the sum is not over the supervised labels")
        what = "the loss is not the supervised labels' sum by their number"
        tally.scalar(losses[name], nll_sum / max(len(counted), 1), depth=depth, what=what)
        total = total + losses[name] * (config.mtp_scale / depths if depth else 1.0)
    tally.scalar(losses["loss"], total, what="the total is not main + mtp_scale / depths * MTP + balance + KL")
    for term, coefficient in (("balance", config.balance_coef), ("kl", config.index_kl_coef)):
        _check_term(tally, observation, term, coefficient)


def _check_term(tally: Tally, observation: Observation, term: str, coefficient: float) -> None:
    """A term is its coefficient times the sum over its parts (named "balance ...") of sum by count."""
    names = [name for name in observation.sums if name.split(" ", 1)[0] == term]
    parts = [observation.sums[name] / max(observation.counts[name], 1) for name in names]
    expected = coefficient * sum(parts, torch.zeros_like(observation.losses[term]))
    tally.scalar(observation.losses[term], expected, what=f"the {term} loss is not its coefficient times its mean")


register(
    Property(
        NAME,
        "depth k at position t is scored on token t+k+1 of its own sample or on nothing, and losses count just those",
        persisting(_labels_stay_inside),
        rounded=True,
    )
)
