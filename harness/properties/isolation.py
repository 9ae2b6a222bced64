"""What a query may not see: other samples and padding, and the future of its own sample.

Both properties ask twice. Perturbing what may not be seen must not move one bit (at fixed shapes the order of every sum
is fixed), and the gradient back to it must be exactly 0.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.case import DTYPES
from harness.properties import Property, register
from harness.properties.bounds import bounds_of, unless_rounding_decides
from harness.properties.finder import Finder
from harness.properties.measure import draw, rows_of_samples
from harness.properties.perturb import Manner, large_embeddings, nan_embeddings
from harness.subjects.support import FIXED_SHAPES, NAN, unsupported_by
from harness.tolerance import EXACT
from harness.verdict import Verdict
from harness.witness import Witness

if TYPE_CHECKING:
    from harness.case import Case
    from harness.corpus import Corpus
    from harness.subjects.protocol import Subject
    from v4model import Pack, PackLayout

SAMPLE = "query_sees_only_its_sample"
FUTURE = "query_sees_no_future"


def _sees_only_its_sample(subject: Subject, case: Case, corpus: Corpus) -> Verdict:
    pack = case.pack(corpus)
    layout = pack.layout
    if layout.num_samples < 2:
        return Verdict.vacuous("one sample only: there is no neighbour to see")
    if _shapes_move(subject):
        return Verdict.undecided(_SHAPES_MOVE)
    same_sample = layout.sample[:, None] == layout.sample[None, :]
    finder = Finder(subject, case, pack, name=SAMPLE, allowed=lambda _depth: same_sample)
    choose = draw(case, "isolation")
    group = rows_of_samples(layout, some_samples(layout.num_samples, choose))
    rest = layout.real & ~group
    large = large_embeddings(case, pack, finder.influence.embeddings)
    nan = large if NAN in unsupported_by(subject) else nan_embeddings(pack, finder.influence.embeddings)
    # Ids reach everything: lookup, hash router, labels. NaN also shows what is only multiplied by 0, unless a
    # comparison swallows it, which large numbers pass.
    plan = [(finder.ids, group), (finder.ids, rest), (nan, group), (choose.choice([nan, large]), rest)]
    return _first(_neighbours_seen(finder, plan, (group, rest)), finder, subject=subject, case=case, pack=pack)


def _neighbours_seen(
    finder: Finder, plan: Sequence[tuple[Manner, Tensor]], groups: Sequence[Tensor]
) -> Iterator[Witness | None]:
    for manner, marked in plan:
        yield finder.by_perturbing(manner, marked, watched=_always(~marked))
    for group in groups:
        yield finder.by_gradient([group] * finder.num_depths, forbidden=~group)


def _always(rows: Tensor) -> Callable[[int, str], Tensor]:
    return lambda _depth, _kind: rows


def some_samples(count: int, choose: random.Random) -> list[int]:
    """Some of the samples, not all: every second one (so that all neighbours are parted), or any choice."""
    if choose.random() < 0.5:
        return list(range(choose.randrange(2), count, 2))
    return choose.sample(range(count), choose.randint(1, count - 1))


def _sees_no_future(subject: Subject, case: Case, corpus: Corpus) -> Verdict:
    pack = case.pack(corpus)
    layout = pack.layout
    if max(layout.lengths) < 2:
        return Verdict.vacuous("samples of one token only: no token has a future")
    if _shapes_move(subject):
        return Verdict.undecided(_SHAPES_MOVE)
    same_sample = layout.sample[:, None] == layout.sample[None, :]
    token = torch.arange(layout.total)

    def allowed(depth: int) -> Tensor:
        # Other samples are the other property's business.
        return ~same_sample | (token[None, :] <= token[:, None] + depth)

    finder = Finder(subject, case, pack, name=FUTURE, allowed=allowed)
    choose = draw(case, "future")
    cuts = [_cuts(layout, ratios, choose) for ratios in ((), subject.config.ratios) for _ in range(2)]
    return _first(_futures_seen(finder, layout, cuts), finder, subject=subject, case=case, pack=pack)


def _futures_seen(finder: Finder, layout: PackLayout, cuts: Sequence[Tensor]) -> Iterator[Witness | None]:
    """Each cut ([T], the token from which on a sample is the future) asked of all samples at once.

    A hit may come from another sample's tokens, so it is asked again of one sample at a time.
    """
    token = torch.arange(layout.total)
    samples = [rows_of_samples(layout, [sample]) for sample in range(layout.num_samples)]
    for number, cut in enumerate(cuts):
        future = layout.real & (token >= cut)
        watched = _watched(layout.real, token, cut)
        rows = [watched(depth, "logits") for depth in range(finder.num_depths)]
        if number % 2 == 0:
            if finder.moves(finder.ids, future, watched=watched):
                for own in samples:
                    yield finder.by_perturbing(finder.ids, future & own, watched=_watched(own, token, cut))
        elif finder.reaches(rows, forbidden=future):
            for own in samples:
                yield finder.by_gradient([mask & own for mask in rows], forbidden=future & own)


def _watched(samples: Tensor, token: Tensor, cut: Tensor) -> Callable[[int, str], Tensor]:
    """Rows of the samples ([T] bool) whose results may not depend on tokens from the cut on."""
    # Depth k reads k tokens further, and the nll one more, its label.
    return lambda depth, kind: samples & (token + depth + (kind == "nll") < cut)


def _cuts(layout: PackLayout, ratios: Sequence[int], choose: random.Random) -> Tensor:
    """[T] the token where the future of each token's sample begins; the sample's end for samples of one token.

    Drawn at the last token of a window of one of the ratios where the sample has one (who sees the row too early sees
    that token too early), anywhere after the first token otherwise.
    """
    cut = torch.zeros(layout.total, dtype=torch.int64)
    for start, length in zip(layout.starts, layout.lengths, strict=True):
        complete = [ratio for ratio in ratios if ratio <= length]
        if length < 2:
            position = length
        elif complete:
            ratio = choose.choice(complete)
            position = choose.randint(1, length // ratio) * ratio - 1
        else:
            position = choose.randint(1, length - 1)
        cut[start : start + length] = start + position
    return cut


def _first(witnesses: Iterator[Witness | None], finder: Finder, *, subject: Subject, case: Case, pack: Pack) -> Verdict:
    witness = next((witness for witness in witnesses if witness is not None), None)
    if witness is None:
        return Verdict.holds(error=finder.error, bound=bounds_of(subject, case).still)
    violated = Verdict.violated(witness)
    # Where the order of every sum is fixed, rounding decides nothing: inputs that may not matter are all that differs.
    return (
        violated if bounds_of(subject, case).still == EXACT else unless_rounding_decides(violated, subject, case, pack)
    )


_SHAPES_MOVE = "expert shapes depend on the routing of other tokens, so bits are not fixed"


def _shapes_move(subject: Subject) -> bool:
    """Whether bits are not fixed though the subject does not say so; one that does is held to a bound instead."""
    return not subject.config.experts_have_fixed_shape and FIXED_SHAPES not in unsupported_by(subject)


register(
    Property(
        SAMPLE,
        "changing, poisoning or removing the influence of a neighbour moves no bit and no gradient of a sample",
        _sees_only_its_sample,
        dtypes=DTYPES,
    )
)
register(
    Property(
        FUTURE,
        "depth k at position t depends on tokens up to t+k of its sample and on none after, to the bit",
        _sees_no_future,
        dtypes=DTYPES,
    )
)
