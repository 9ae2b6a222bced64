"""Experts on their ranks and stages of a pipeline compute the step that one rank computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from harness.properties import Observe, Property, register
from harness.properties.measure import draw
from harness.properties.tally import Tally
from harness.subjects.v4model_meshes import (
    Mesh,
    expert_meshes,
    pipeline_meshes,
    step_on_mesh,
    step_on_one_rank,
    step_on_processes,
)
from harness.tolerance import GRADIENT_FLOOR_SHARE, REORDERED_F64, largest_magnitude
from harness.verdict import Verdict
from harness.witness import Witness
from v4model.exchange import RankError

if TYPE_CHECKING:
    from torch import Tensor

    from harness.case import Case
    from harness.corpus import Corpus
    from harness.subjects.protocol import Subject
    from v4model import Pack, V4Config

EP = "ep_matches_one_rank"
PP = "pp_matches_one_rank"

_MICRO_BATCHES = 2
"""Packs that follow each other through a pipeline; without one they would only repeat the work."""


def _matches(name: str, meshes_of: Callable[[V4Config, int], list[Mesh]]) -> Callable[..., Verdict]:
    def check(subject: Subject, case: Case, corpus: Corpus) -> Verdict:
        model = getattr(subject, "model", None)
        if model is None or case.ranks is None:
            return Verdict.vacuous("the subject runs on no ranks")
        meshes = meshes_of(subject.config, case.ranks)
        if not meshes:
            return Verdict.vacuous(f"{case.ranks} ranks make no such mesh of this model")
        return _compare(name, subject, case, corpus, draw(case, name).choice(meshes))

    return check


def _observed(meshes_of: Callable[[V4Config, int], list[Mesh]]) -> Observe:
    def observe(subject: Subject, pack: Pack) -> Mapping[str, Tensor]:
        """A step of the pack, as often as it takes, on every mesh: its loss, nll and gradients."""
        ranks: int = getattr(subject, "ranks", 1)
        found: dict[str, Tensor] = {}
        for mesh in meshes_of(subject.config, ranks):
            try:
                run = step_on_mesh(subject.model, [pack] * _packs_a_step(mesh), mesh)  # type: ignore[attr-defined]
            except RankError:
                continue
            nll = {
                f"nll of micro-batch {batch} and depth {depth}": rows
                for batch, depths in enumerate(run.nll)
                for depth, rows in enumerate(depths)
            }
            found |= {f"{name} on {mesh}": value for name, value in {"loss": run.loss, **nll, **run.gradients}.items()}
        return found

    return observe


def _packs_a_step(mesh: Mesh) -> int:
    return mesh.dp * (_MICRO_BATCHES if mesh.pp > 1 else 1)


def _compare(name: str, subject: Subject, case: Case, corpus: Corpus, mesh: Mesh) -> Verdict:
    model = subject.model  # type: ignore[attr-defined]  # checked by the caller
    # Different text for every pack of the step.
    packs = [replace(case, seed=case.seed + batch).pack(corpus) for batch in range(_packs_a_step(mesh))]
    where = f"one rank (dp={mesh.dp} pp={mesh.pp} cp={mesh.cp} ep={mesh.ep})"
    expected = step_on_one_rank(model, packs)
    try:
        # Only a subject that is built on `V4OneRank` has ranks on processes.
        got = step_on_processes(subject.one, packs, mesh) if case.processes else step_on_mesh(model, packs, mesh)  # type: ignore[attr-defined]
    except RankError as error:
        return Verdict.violated(
            Witness(
                property=name, branch="exchange", what=f"{error}, against {where}", magnitude=float("inf"), bound=0.0
            )
        )
    layout = packs[0].layout
    tally = Tally(name, bound=REORDERED_F64, layout=layout)
    tokens = torch.arange(layout.total)
    for batch, (ours, theirs) in enumerate(zip(got.nll, expected.nll, strict=True)):
        for depth, (nll, wanted) in enumerate(zip(ours, theirs, strict=True)):
            what = f"nll of micro-batch {batch} differs from {where}"
            tally.rows(nll, wanted, tokens=tokens, depth=depth, what=what)
    tally.scalar(got.loss, expected.loss, what=f"the step's loss differs from {where}")
    floor = GRADIENT_FLOOR_SHARE * max(largest_magnitude(grad) for grad in expected.gradients.values())
    missing = sorted(set(expected.gradients) - set(got.gradients))
    if missing:
        tally.fail(what=f"no gradient, against {where}", branch="gradient", magnitude=float("inf"), layer=missing[0])
    else:
        wanted_gradients = {
            key: expected.gradients.get(key, torch.zeros_like(grad)) for key, grad in got.gradients.items()
        }
        tally.gradients(got.gradients, wanted_gradients, floor=floor, than=where)
    return tally.verdict()


register(
    Property(
        name=EP,
        about="experts on their ranks give the nll, loss and gradients of one rank over several packs (<= 1e-9)",
        check=_matches(EP, expert_meshes),
        looks_at="mesh",
        observed=_observed(expert_meshes),
        ranked=True,
        on_processes=True,
        least_ranks=2,
    )
)
register(
    Property(
        name=PP,
        about="pipeline stages give the nll, loss and gradients of one rank over several packs (<= 1e-9)",
        check=_matches(PP, pipeline_meshes),
        looks_at="mesh",
        observed=_observed(pipeline_meshes),
        ranked=True,
        on_processes=True,
        least_ranks=2,
    )
)
