"""Padding belongs to no sample: its amount, its place and what stands in it change nothing, and it gives zeros."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.properties import Property, register
from harness.properties.bounds import bounds_of, unless_rounding_decides
from harness.properties.locate import localised, moved_back
from harness.properties.measure import draw, tokens_of
from harness.properties.perturb import Inputs, large_embeddings, nan_embeddings
from harness.properties.rounding import Alike, persisting
from harness.properties.runs import Run, laid_out, paddings_of, run_with_gradients
from harness.properties.tally import Tally, compare_runs, compare_still
from harness.subjects.record import NONE
from harness.subjects.support import NAN, unsupported_by
from v4model import Pack

if TYPE_CHECKING:
    from harness.case import Case
    from harness.corpus import Corpus
    from harness.subjects.protocol import Observation, Subject
    from harness.verdict import Verdict

NAME = "padding_changes_nothing"

_MOST_BETWEEN = 9
_MOST_TAIL = 19
"""Tokens of padding added at most between two samples, and at the tail."""


def _padding_changes_nothing(subject: Subject, case: Case, corpus: Corpus) -> Verdict:
    choose = draw(case, NAME)
    given = case.pack(corpus)
    other, moved_to = _with_other_padding(given, choose)
    # At least one of the two is padded; what stands in that padding is poisoned, and the other stays clean.
    given_is_padded = bool(other.layout.real.all())
    padded, clean = (given, other) if given_is_padded else (other, given)
    poisoned = _poisoned(padded, choose, vocab_size=subject.config.vocab_size)
    table = subject.embeddings(padded)
    large = NAN in unsupported_by(subject)
    poison = large_embeddings(case, padded, table) if large else nan_embeddings(padded, table)
    embeddings = poison.applied(~padded.layout.real).embeddings
    alike = Alike(subject, case, padded, embeddings=table)
    run = run_with_gradients(subject, poisoned, embeddings=embeddings)
    still = bounds_of(subject, case).still
    content = _content_changes_nothing(subject, Inputs(padded, table), Inputs(poisoned), run, bound=still)
    if content.violated:
        return unless_rounding_decides(content.verdict(), subject, case, padded)
    tokens = tokens_of(given.layout.real)
    of_clean, of_padded = (moved_to, tokens) if given_is_padded else (tokens, moved_to)
    in_padded = _places(clean, of_clean, of_padded)
    with alike.told(in_padded):
        clean_run = run_with_gradients(subject, clean, embeddings=subject.embeddings(clean))
    tally = alike.tally(NAME, layout=given.layout)
    one, two = (run, clean_run) if given_is_padded else (clean_run, run)
    alike.judge_choices(tally, tokens=_places(padded, of_padded, tokens))
    compare_runs(tally, one, two, tokens=tokens, other=moved_to, than=f"those with {_in_words(other)}")
    poisoned_inputs, clean_inputs = Inputs(poisoned, embeddings), Inputs(clean, subject.embeddings(clean))
    mine, theirs = (poisoned_inputs, clean_inputs) if given_is_padded else (clean_inputs, poisoned_inputs)
    # What ran first is told its own choices.
    told_mine, told_theirs = (_places(poisoned, of_padded, of_padded), in_padded)[:: 1 if given_is_padded else -1]
    return localised(
        unless_rounding_decides(tally.verdict(), subject, case, given),
        subject,
        layout=given.layout,
        got=lambda recorder: alike.recorded(
            told_mine, lambda: recorder.layer_outputs(mine.pack, embeddings=mine.embeddings)
        ),
        expected=lambda recorder: alike.recorded(
            told_theirs, lambda: moved_back(recorder, theirs, moved_to=moved_to, pack=given)
        ),
        bound=alike.bound_of_rows,
    )


def _places(pack: Pack, tokens: Tensor, others: Tensor) -> Tensor:
    """[T of the pack] for each of some tokens, [N], what others, [N], says of it; NONE for the rest."""
    places = torch.full((pack.layout.total,), NONE)
    places[tokens] = others
    return places


def _content_changes_nothing(
    subject: Subject, clean: Inputs, looked_up: Inputs, poisoned: Run, *, bound: float
) -> Tally:
    """At fixed shapes, and so to the bit (bound 0): poison in the padding, by its embeddings and by its ids."""
    tally = Tally(NAME, bound=bound, layout=clean.pack.layout)
    before = clean.observe(subject)
    _padding_gives_zeros(tally, before, clean.pack)
    _padding_gives_zeros(tally, poisoned.observation, clean.pack)
    assert poisoned.of_embeddings is not None, "embeddings were given"
    padding = tokens_of(~clean.pack.layout.real)
    what = "the gradient at the embedding of padding is not 0"
    tally.zeros(poisoned.of_embeddings[padding], tokens=padding, depth=0, what=what, branch="gradient")
    compare_still(tally, poisoned.observation, before, than="those before poison stood in the padding")
    than = "those before ids outside the vocabulary stood in the padding"
    compare_still(tally, looked_up.observe(subject), before, than=than)
    return tally


def _with_other_padding(pack: Pack, choose: random.Random) -> tuple[Pack, Tensor]:
    """The same samples with other padding at every place: some where there was none, none or more where there was."""
    between, tail = paddings_of(pack.layout)
    paddings = [_other_amount(amount, choose, most=_MOST_BETWEEN) for amount in between[:-1]]
    return laid_out(
        pack,
        order=range(pack.layout.num_samples),
        paddings=[*paddings, 0],
        tail=_other_amount(tail, choose, most=_MOST_TAIL),
    )


def _other_amount(amount: int, choose: random.Random, *, most: int) -> int:
    return 0 if amount and choose.random() < 0.5 else amount + choose.randint(1, most)


def _in_words(pack: Pack) -> str:
    paddings, tail = paddings_of(pack.layout)
    return f"{sum(paddings)} padding tokens between samples and {tail} at the tail"


def _poisoned(pack: Pack, choose: random.Random, *, vocab_size: int) -> Pack:
    """Ids that no table holds, and real ones, at padding; and a loss mask that claims them."""
    real = pack.layout.real
    ids = torch.tensor([choose.choice([-100, -1, 0, vocab_size, 1 << 40]) for _ in range(pack.layout.total)])
    return Pack(torch.where(real, pack.tokens, ids), layout=pack.layout, supervised=pack.supervised | ~real)


def _padding_gives_zeros(tally: Tally, observation: Observation, pack: Pack) -> None:
    padding = tokens_of(~pack.layout.real)
    for depth, given in enumerate(observation.depths):
        for kind, table in (("logits", given.values), ("nll", given.nll)):
            what = f"{kind} of padding are not 0"
            tally.zeros(table[padding], tokens=padding, depth=depth, what=what, branch="padding")


register(
    Property(
        NAME,
        "amount, place and content of padding change no logit, loss or gradient, and padding itself gives exactly 0",
        persisting(_padding_changes_nothing),
        rounded=True,
    )
)
