"""One forward and backward of a subject, and the same samples laid out in another way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from harness.subjects.missing import note_what_is_missing
from harness.subjects.protocol import Observation
from v4model import Pack, PackLayout

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


@dataclass(frozen=True)
class Run:
    """What a subject gave on a pack, and the gradient of `objective` for every parameter.

    of_embeddings [T, D]: the gradient at each token's embedding, None if the subject looked them up itself.
    """

    observation: Observation
    of_parameters: Mapping[str, Tensor]
    of_embeddings: Tensor | None


def run_with_gradients(subject: Subject, pack: Pack, *, embeddings: Tensor | None = None) -> Run:
    """Forward and backward. embeddings [T, D] replace the lookup (whose table then gets a gradient of zeros)."""
    leaf = None if embeddings is None else embeddings.detach().clone().requires_grad_()
    observation = subject.observe(pack, embeddings=leaf)
    note_what_is_missing(observation, subject.config)
    leaves = dict(subject.parameters())
    found = gradients(objective(observation), leaves if leaf is None else {**leaves, "": leaf})
    of_embeddings = None if leaf is None else found.pop("")
    return Run(observation, found, of_embeddings)


_Key: TypeAlias = tuple[int, PackLayout, bytes, bytes, bytes | None]
_runs: ContextVar[dict[_Key, tuple[Subject, Run]] | None] = ContextVar("runs", default=None)


@contextmanager
def runs_are_shared() -> Iterator[None]:
    """Within, `shared_run` makes each run once. For one case with the faults it is checked with, not longer."""
    token = _runs.set({})
    try:
        yield
    finally:
        _runs.reset(token)


def shared_run(subject: Subject, pack: Pack, *, embeddings: Tensor | None) -> Run:
    """`run_with_gradients`, once for properties that ask the same of one subject: same tokens, same embeddings."""
    runs = _runs.get()
    if runs is None:
        return run_with_gradients(subject, pack, embeddings=embeddings)
    given = None if embeddings is None else _bytes(embeddings)
    key = (id(subject), pack.layout, _bytes(pack.tokens), _bytes(pack.supervised), given)
    if key not in runs:
        # The subject is kept with its run: an id is given away again once its object is gone.
        runs[key] = subject, run_with_gradients(subject, pack, embeddings=embeddings)
    note_what_is_missing(runs[key][1].observation, subject.config)
    return runs[key][1]


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()


def objective(observation: Observation) -> Tensor:
    """One scalar of all the sums, so that its gradient adds up over samples; each sum has a weight of its own."""
    terms = [value.reshape(()) / (1 + index) for index, (_, value) in enumerate(sorted(observation.sums.items()))]
    return torch.stack(terms).sum()


def gradients(scalar: Tensor, leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Gradient of a scalar for each named leaf; zeros where the graph does not reach it."""
    found = torch.autograd.grad(scalar, list(leaves.values()), allow_unused=True)
    return {
        name: torch.zeros_like(leaf) if grad is None else grad
        for (name, leaf), grad in zip(leaves.items(), found, strict=True)
    }


def added(one: Run, two: Run) -> Run:
    """Two runs as if their samples had been in one: sums, counts and parameter gradients added, the rest of `one`."""
    sums = {name: value + two.observation.sums[name] for name, value in one.observation.sums.items()}
    counts = {name: value + two.observation.counts[name] for name, value in one.observation.counts.items()}
    return Run(
        Observation(depths=one.observation.depths, sums=sums, counts=counts, losses={}),
        {name: grad + two.of_parameters[name] for name, grad in one.of_parameters.items()},
        one.of_embeddings,
    )


def laid_out(
    pack: Pack, *, order: Sequence[int], paddings: Sequence[int], tail: int, front: Pack | None = None
) -> tuple[Pack, Tensor]:
    """The samples of a pack in another order and with other padding.

    order: indices of samples. paddings: tokens of padding behind each, in the new order. front: one sample to put
    before all. Padding gets the id of the pack's first token. Returns the new pack, and [real tokens] where each real
    token of the old pack, in the old order, lies in it.
    """
    old, first = pack.layout, 0 if front is None else front.layout.total
    lengths = [old.lengths[sample] for sample in order]
    slots = [length + padding for length, padding in zip(lengths, paddings, strict=True)]
    if front is not None:
        lengths, slots = [first, *lengths], [first, *slots]
    layout = PackLayout.from_lengths(lengths, total=sum(slots) + tail, slots=slots)
    starts = layout.starts if front is None else layout.starts[1:]
    start_of = dict(zip(order, starts, strict=True))
    new = torch.cat([start_of[sample] + torch.arange(length) for sample, length in enumerate(old.lengths)])
    tokens = torch.full((layout.total,), int(pack.tokens[old.starts[0]]), dtype=torch.int64)
    supervised = torch.zeros(layout.total, dtype=torch.bool)
    tokens[new], supervised[new] = pack.tokens[old.real], pack.supervised[old.real]
    if front is not None:
        tokens[:first], supervised[:first] = front.tokens, front.supervised
    return Pack(tokens, layout=layout, supervised=supervised), new


def turned(pack: Pack) -> Pack:
    """The samples in reverse order, with the padding in its places: as many tokens, other boundaries."""
    paddings, tail = paddings_of(pack.layout)
    return laid_out(pack, order=range(pack.layout.num_samples)[::-1], paddings=paddings, tail=tail)[0]


def paddings_of(layout: PackLayout) -> tuple[list[int], int]:
    """Tokens of padding between the samples (0 behind the last), and those of the tail."""
    ends = [start + length for start, length in zip(layout.starts, layout.lengths, strict=True)]
    between = [start - end for end, start in zip(ends, layout.starts[1:], strict=False)]
    return [*between, 0], layout.total - ends[-1]
