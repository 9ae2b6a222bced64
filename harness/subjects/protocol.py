"""What the harness asks of anything it checks: embeddings in, values and losses out, per MTP depth.

Letters for axes: T tokens of the pack, D hidden size, X whatever a depth's values have (logits V, or hidden D).
A subject owns its parameters; `observe` may be called any number of times and must not change what a later call gives.

What a subject cannot do it says, and never fakes: it raises `Unsupported(reason)`, from its factory or from any method,
or declares it beforehand as `unsupported` (`harness.subjects.support`). The verdict is then UNDECIDED with that reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from harness.subjects.record import Record
    from v4model import Pack, V4Config


Value = TypeVar("Value")


class Unsupported(Exception):
    """A subject cannot be asked this; the message is the reason, a clause such as "the model has no MTP"."""


class Terms(dict[str, Value]):
    """Values by the name of their term; to ask for one that the subject does not give raises `Unsupported`."""

    def __missing__(self, name: str) -> Value:
        raise Unsupported(f"it gives no {name!r}, only {', '.join(map(repr, self)) or 'nothing'}")


@dataclass(frozen=True)
class Depth:
    """What one depth computes: index 0 of `Observation.depths` is the trunk, k is MTP depth k.

    values [T, X]: logits, carrying the graph. nll [T]: negative log likelihood of each token's label, 0 where it has
    none. valid [T] bool: the position belongs to a sample, and so does the token k further that depth k reads.
    """

    values: Tensor
    nll: Tensor
    valid: Tensor


@dataclass(frozen=True)
class Observation:
    """One forward pass.

    sums: scalar sums that add up over samples, undivided ("main", "mtp1", "mtp2", "balance", "kl"); counts: what they
    are divided by, under the same names; losses: the divided terms ("loss", "main", "mtp1", ..., "balance", "kl").
    Sums and losses carry the graph. The three become `Terms`.
    """

    depths: tuple[Depth, ...]
    sums: Mapping[str, Tensor]
    counts: Mapping[str, float]
    losses: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        for name in ("sums", "counts", "losses"):
            object.__setattr__(self, name, Terms(getattr(self, name)))


class Subject(Protocol):
    """A model under check."""

    @property
    def name(self) -> str:
        """Short name for reports."""
        ...

    @property
    def config(self) -> V4Config:
        """The configuration that it was built from."""
        ...

    def parameters(self) -> Mapping[str, Tensor]:
        """Every trainable parameter by name, as leaves of the graph of `observe`."""
        ...

    def embeddings(self, pack: Pack) -> Tensor:
        """Token embeddings [T, D] as a detached leaf that does not require grad yet."""
        ...

    def observe(self, pack: Pack, *, embeddings: Tensor | None = None) -> Observation:
        """Run the pack; embeddings [T, D], if given, replace the lookup in the trunk and in every MTP depth."""
        ...


@runtime_checkable
class Recorder(Protocol):
    """A subject that can tell what its parts read and put out."""

    def layer_outputs(self, pack: Pack, *, embeddings: Tensor | None = None) -> Record:
        """One forward pass under the names of `harness.subjects.record`, as many of them as the subject has."""
        ...


@dataclass(frozen=True, eq=False)
class Choice:
    """What one part of a model (an indexer, a router) chose among, in a run that was told what to take.

    values [T, C]: float64, what it chooses by, the largest first; -inf where there is nothing to choose. taken [T, C]
    bool: what it took. told [T] bool: rows that were told. absent [T] bool: rows that were told to take something that
    they may not take here, or another number; they took their own choice.
    """

    values: Tensor
    taken: Tensor
    told: Tensor
    absent: Tensor


@runtime_checkable
class Measurable(Subject, Recorder, Protocol):
    """A subject in a narrow dtype whose rounding can be measured, so that its bounds are computed and not fixed.

    `harness.properties.rounding` compares `plain` with `exact` on each case. Neither shares a module with the subject:
    what is planted there leaves them healthy. Both have the weights that the subject has when they are asked for.
    """

    def plain(self) -> Measurable:
        """The same weights in the same dtype, computed by plain operations."""
        ...

    def exact(self) -> Measurable:
        """The same weights in float64."""
        ...

    def choosing(self, choices: Record, rows: Tensor) -> AbstractContextManager[Mapping[str, Choice]]:
        """Within, rows ([T] bool) of the one pack that is run take what a record says, whatever they would choose.

        choices: `{block}.self_attn.indexer.picks` and `{block}.mlp.gate.experts` of `harness.subjects.record`, laid on
        that pack. Gives what each part chose among, by the name of the part, once it has run.
        """
        ...


SubjectFactory: TypeAlias = Callable[["V4Config", "torch.dtype", int], Subject]
"""Builds a subject from a configuration, a dtype and a seed for its weights; may raise `Unsupported`.

It, or the subject, or both may have an attribute `unsupported`: `harness.subjects.support` tells what it holds. It may
have a method `check_machine`, which raises `UsageError` where the machine lacks what it runs on.
"""
