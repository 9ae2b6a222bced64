"""Bounds that are computed: what plain operations of a subject's dtype leave against float64, on each case.

Only for subjects that are `Measurable`, in a dtype that is not float64. Four things would spoil it, and each is met:

- A choice (of experts, of pooled rows) among values that rounding cannot tell apart falls either way, and moves what
  follows by far more than rounding. So all runs of a case are told to choose what one of them chose, and what that
  costs in the values of the run that is told has to be within rounding: a choice that is wrong still shows.
- The error of one number may be small by luck. So there is one bound for all values and sums of a case, and no gradient
  is taken to round by less than nine in ten of them do; experts' round by far more, where a limit clamps, and have
  bounds of their own.
- The error of a gradient in one layout says a little less of another, so that twice as much is allowed there.
- A gradient jumps where a limit clamps, and an activation next to one is on its other side in another order of sums.
  That is no defect, and does not come back when all parameters are moved by a few roundings (`persisting`); a defect
  does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.properties.bounds import bounds_of, measurable
from harness.properties.locate import witnesses_are_brief
from harness.properties.measure import generator, tokens_of
from harness.properties.runs import run_with_gradients
from harness.properties.tally import VALUES, Tally, compare_runs
from harness.subjects.protocol import Unsupported
from harness.subjects.record import NONE, choices_in, depth_of, laid_on
from harness.tolerance import EXACT, LAYOUTS_APART, ROUNDING, TWINS_APART, largest_magnitude, relative_error
from harness.verdict import Outcome

if TYPE_CHECKING:
    from harness.case import Case
    from harness.corpus import Corpus
    from harness.properties import Check
    from harness.subjects.protocol import Choice, Subject
    from harness.subjects.record import Record
    from harness.verdict import Verdict
    from v4model import Pack, PackLayout

_TRIES = 3
"""Times that parameters are moved by rounding before a violation counts."""

_ROUNDINGS = 16
"""How far they are moved, relative to themselves: as much as a few layers of sums leave."""


_MOST = 0.25
"""Of values: past it two runs may be as far apart as values are large."""


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """The largest relative errors that plain operations leave, by the measures of a tally.

    gradients: by the names of a tally. choices: by part.
    """

    values: float
    gradients: Mapping[str, float]
    choices: Mapping[str, float]


class Alike:
    """Runs of the same samples that are compared: all choose as the first does, and the bounds are computed.

    For a subject whose bounds are fixed nothing is told, and those are taken.
    """

    def __init__(
        self, subject: Subject, case: Case, pack: Pack, *, embeddings: Tensor | None, record: Record | None = None
    ) -> None:
        """The first run is that of the pack with the embeddings [T, D]; record: another's choices instead of its."""
        self._subject, self._case = subject, case
        self._pack, self._embeddings, self._given = pack, embeddings, record
        self._measurable = measurable(subject, case)
        self._made: list[tuple[Tensor, Mapping[str, Choice]]] = []

    @contextmanager
    def told(self, tokens: Tensor) -> Iterator[None]:
        """Within, the one run of a pack chooses as the first did.

        tokens [its T]: the first pack's token for each of its own, NONE for those that the first does not have.
        """
        if self._measurable is None:
            yield
            return
        rows = tokens >= 0
        place = torch.full((self._pack.layout.total,), NONE)
        place[tokens[rows]] = tokens_of(rows)
        choices = laid_on([(self._choices, place)], total=len(tokens))
        with self._measurable.choosing(choices, rows) as made:
            yield
        self._made.append((tokens, made))

    def told_sample(self, tokens: range) -> AbstractContextManager[None]:
        """`told` for the run of one sample alone, by its tokens in the first pack."""
        return self.told(torch.arange(tokens.start, tokens.stop))

    def recorded(self, tokens: Tensor, make: Callable[[], Record]) -> Record:
        """A record of one run that is `told`."""
        with self.told(tokens):
            return make()

    def tally(self, name: str, *, layout: PackLayout, apart: float = TWINS_APART) -> Tally:
        """To compare them with; apart: how many times the plain error two of them may differ by."""
        if self._measurable is None:
            return Tally(name, bound=bounds_of(self._subject, self._case).reordered, layout=layout)
        found = self._rounding
        of_gradients = {name: LAYOUTS_APART * apart * error for name, error in found.gradients.items()}
        return Tally(name, bound=apart * found.values, of_gradients=of_gradients, layout=layout)

    @property
    def bound_of_rows(self) -> float | None:
        """By which rows of two records may differ, None where it is fixed."""
        return None if self._measurable is None else TWINS_APART * self._rounding.values

    def judge_choices(self, tally: Tally, *, tokens: Tensor | None = None, apart: float = TWINS_APART) -> None:
        """Compares what was told with what would have been chosen.

        tokens [T]: the token in the tally's layout for each of the first pack's, -1 for none; None for the same.
        """
        for told, made in self._made:
            places = told if tokens is None else torch.where(told >= 0, tokens[told.clamp_min(0)], NONE)
            for name, choice in made.items():
                bound = 2 * apart * self._rounding.choices[name]
                tally.choice(name, _cost(choice), tokens=places, bound=bound, depth=depth_of(name))

    @cached_property
    def _choices(self) -> Record:
        assert self._measurable is not None
        record = self._given or self._measurable.layer_outputs(self._pack, embeddings=self._embeddings)
        return choices_in(record)

    @cached_property
    def _rounding(self) -> Rounding:
        assert self._measurable is not None
        real = self._pack.layout.real
        runs, made = [], []
        wide = None if self._embeddings is None else self._embeddings.double()
        for model, embeddings in ((self._measurable.plain(), self._embeddings), (self._measurable.exact(), wide)):
            with model.choosing(self._choices, real) as choices:
                runs.append(run_with_gradients(model, self._pack, embeddings=embeddings))
            made.append(choices)
        tally = Tally("rounding", bound=math.inf, of_gradients={}, layout=self._pack.layout)
        tokens = tokens_of(real)
        compare_runs(tally, *runs, tokens=tokens, other=tokens, than="float64")
        least = ROUNDING[self._case.dtype]
        gradients = {name: error for name, error in tally.errors.items() if name != VALUES}
        if not tally.errors[VALUES] <= _MOST or not all(map(math.isfinite, gradients.values())):
            raise Unsupported(
                f"plain operations in {self._case.dtype} leave {tally.errors[VALUES]:.1e} of values, and gradients "
                f"{max(gradients.values()):.1e} of theirs: a defect cannot be told from rounding"
            )
        usual = max(sorted(gradients.values())[9 * len(gradients) // 10], least)
        return Rounding(
            values=max(tally.errors[VALUES], least),
            gradients={name: max(error, usual) for name, error in gradients.items()},
            choices={name: max(_apart(made[0][name], exact), least) for name, exact in made[1].items()},
        )


def _apart(plain: Choice, exact: Choice) -> float:
    """The largest relative error of what is chosen by, in rows that were told."""
    some = exact.values.isfinite() & plain.values.isfinite() & exact.told[:, None]
    got, expected = plain.values[some], exact.values[some]
    return relative_error(got, expected, floor=0.0)


def _cost(choice: Choice) -> Tensor:
    """[T] by how much the best that was left exceeds the worst that was taken, relative to the largest value.

    0 where nothing was told, infinite where what was told is not there.
    """
    if not choice.values.shape[1]:
        return torch.where(choice.absent, math.inf, 0.0)
    left = choice.values.masked_fill(choice.taken, -math.inf).amax(1)
    worst = choice.values.masked_fill(~choice.taken, math.inf).amin(1)
    scale = max(largest_magnitude(choice.values[choice.values.isfinite()]), torch.finfo(torch.float32).tiny)
    cost = ((left - worst) / scale).nan_to_num(nan=math.inf).clamp_min(0.0)
    return torch.where(choice.told, torch.where(choice.absent, math.inf, cost), 0.0)


def persisting(check: Check) -> Check:
    """The check, of whose violations only those count that stay when all parameters are moved by a few roundings.

    Only where bounds are computed: not of bits. What is judged anew says so in its reason, and is counted by it.
    """

    @wraps(check)
    def checked(subject: Subject, case: Case, corpus: Corpus) -> Verdict:
        first = check(subject, case, corpus)
        if first.witness is None or first.witness.bound == EXACT or measurable(subject, case) is None:
            return first
        size = _ROUNDINGS * ROUNDING[case.dtype]
        for number in range(_TRIES):
            moved = _moved(subject.parameters(), by=size, source=generator(case, f"rounding {number}"))
            with moved, witnesses_are_brief():
                again = check(subject, case, corpus)
            if again.outcome is Outcome.HOLDS:
                return replace(again, reason=f"judged with parameters moved by {size:.0e}: rounding decided before")
        return first

    return checked


@contextmanager
def _moved(leaves: Mapping[str, Tensor], *, by: float, source: torch.Generator) -> Iterator[None]:
    """Every parameter moved at random, relative to itself, and the same bits as before afterwards."""
    before = {name: leaf.detach().clone() for name, leaf in leaves.items()}
    try:
        with torch.no_grad():
            for leaf in leaves.values():
                noise = torch.randn(leaf.shape, generator=source, dtype=torch.float64)
                leaf.copy_(leaf.double() * (1 + by * noise.to(leaf.device)))
        yield
    finally:
        with torch.no_grad():
            for name, leaf in leaves.items():
                leaf.copy_(before[name])
