"""How a fault takes hold of a step on a mesh of ranks, and of nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest import mock

from harness.faults.patching import WhileInside, model_of
from harness.subjects import v4model_meshes
from v4model import Pack, V4Model
from v4model.parallel.pp import run_step

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject
    from v4model.exchange import Pipe, Ranks
    from v4model.model.model import StageOutput
    from v4model.pack.counts import StepCounts


@contextmanager
def replaced_on_meshes(subject: Subject, owner: object, name: str, value: object) -> Iterator[None]:
    """`name` of a module or class is `value` while ranks of a mesh run a step with their shares of the subject.

    The step on one rank, which the mesh is compared with, stays healthy.
    """
    config, patch = model_of(subject).config, WhileInside(owner, name, value)

    def step(
        model: V4Model, packs: Sequence[Pack], *, ranks: Ranks, pipe: Pipe, counts: StepCounts
    ) -> list[StageOutput]:
        # Shares are models of their own, made for the step; what they have of the whole one is its config.
        if model.config is not config:
            return run_step(model, packs, ranks=ranks, pipe=pipe, counts=counts)
        with patch.inside():
            return run_step(model, packs, ranks=ranks, pipe=pipe, counts=counts)

    with mock.patch.object(v4model_meshes, "run_step", step):
        yield
