"""The law itself: a packed sample gives what it gives alone, wherever it lies in the pack.

What is compared: logits and nll of every token at every depth, the undivided sums with their counts, and the gradient
of a weighted total of the sums for every parameter and every embedding. Undivided, because a mean over the pack couples
its samples.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.properties import Property, register
from harness.properties.bounds import unless_rounding_decides
from harness.properties.locate import localised, moved_back
from harness.properties.measure import draw, generator, tokens_of
from harness.properties.perturb import Inputs
from harness.properties.rounding import Alike, persisting
from harness.properties.runs import added, laid_out, paddings_of, run_with_gradients, turned
from harness.properties.tally import compare_runs
from harness.subjects.alone import Alone, recorded_alone
from harness.subjects.record import NONE
from harness.verdict import Verdict
from v4model import Pack, PackLayout

if TYPE_CHECKING:
    from harness.case import Case
    from harness.corpus import Corpus
    from harness.subjects.protocol import Subject

ALONE = "packed_equals_alone"
ORDER = "order_and_offset_change_nothing"

_LONGEST_FRONT = 12
"""Tokens put in front at most: enough to shift the others to every remainder of the small ratios."""


def _equals_alone(subject: Subject, case: Case, corpus: Corpus) -> Verdict:
    pack = case.pack(corpus)
    if pack.layout.num_samples == 1 and bool(pack.layout.real.all()):
        return Verdict.vacuous("one sample without padding is already alone")
    embeddings = _embeddings_or_lookup(subject, pack, draw(case, ALONE))
    alike = Alike(subject, case, pack, embeddings=embeddings)
    packed = run_with_gradients(subject, pack, embeddings=embeddings)
    alone = run_with_gradients(Alone(subject, within=alike.told_sample), pack, embeddings=embeddings)
    tally = alike.tally(ALONE, layout=pack.layout)
    tokens = tokens_of(pack.layout.real)
    alike.judge_choices(tally)
    compare_runs(tally, packed, alone, tokens=tokens, other=tokens, than="the samples alone")
    return localised(
        unless_rounding_decides(tally.verdict(), subject, case, pack),
        subject,
        layout=pack.layout,
        got=lambda recorder: recorder.layer_outputs(pack, embeddings=embeddings),
        expected=lambda recorder: recorded_alone(recorder, pack, embeddings=embeddings, within=alike.told_sample),
        bound=alike.bound_of_rows,
    )


def _changes_nothing(subject: Subject, case: Case, corpus: Corpus) -> Verdict:
    pack = case.pack(corpus)
    choose = draw(case, ORDER)
    order = choose.sample(range(pack.layout.num_samples), pack.layout.num_samples)
    paddings, tail = paddings_of(pack.layout)
    front = _front_sample(case, choose, vocab_size=subject.config.vocab_size)
    # A model that keeps masks or positions by the number of tokens would read the pack with those of this one.
    Inputs(turned(pack)).observe(subject)
    moved_pack, moved_to = laid_out(pack, order=order, paddings=paddings, tail=tail, front=front)
    alike = Alike(subject, case, moved_pack, embeddings=None)
    moved = run_with_gradients(subject, moved_pack)
    place_of_token = torch.full((pack.layout.total,), NONE)
    place_of_token[pack.layout.real] = moved_to
    with alike.told(place_of_token):
        without_front = run_with_gradients(subject, pack)
    with alike.told(torch.arange(front.layout.total)):
        in_front = run_with_gradients(subject, front)
    # The law makes sums and gradients add up over samples, so the sample in front is added to those without it.
    given = added(without_front, in_front)
    tally = alike.tally(ORDER, layout=pack.layout)
    token_of_place = torch.full((moved_pack.layout.total,), NONE)
    token_of_place[moved_to] = tokens_of(pack.layout.real)
    alike.judge_choices(tally, tokens=token_of_place)
    than = f"those in the order {order} behind another sample of {front.layout.total} tokens"
    compare_runs(tally, given, moved, tokens=tokens_of(pack.layout.real), other=moved_to, than=than)
    return localised(
        unless_rounding_decides(tally.verdict(), subject, case, pack),
        subject,
        layout=pack.layout,
        got=lambda recorder: alike.recorded(place_of_token, lambda: recorder.layer_outputs(pack)),
        expected=lambda recorder: moved_back(recorder, Inputs(moved_pack), moved_to=moved_to, pack=pack),
        bound=alike.bound_of_rows,
    )


def _embeddings_or_lookup(subject: Subject, pack: Pack, choose: random.Random) -> Tensor | None:
    """Half of the cases differentiate each token's embedding, the other half the table through its own lookup."""
    return subject.embeddings(pack) if choose.random() < 0.5 else None


def _front_sample(case: Case, choose: random.Random, *, vocab_size: int) -> Pack:
    length = choose.randint(1, _LONGEST_FRONT)
    source = generator(case, "the sample in front")
    tokens = torch.randint(0, vocab_size, (length,), generator=source)
    supervised = torch.randint(0, 2, (length,), generator=source) > 0
    return Pack(tokens, layout=PackLayout.single(length), supervised=supervised)


register(
    Property(
        ALONE,
        "logits, losses and every gradient of packed samples are those of each sample run alone",
        persisting(_equals_alone),
        rounded=True,
    )
)
register(
    Property(
        ORDER,
        "samples in another order, with another sample in front, give the same logits, losses and gradients",
        persisting(_changes_nothing),
        rounded=True,
    )
)
