"""Tells witnesses where runs part, for subjects that record what their parts read and put out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.properties.margin import decided_by_rounding
from harness.properties.measure import tokens_of
from harness.properties.parting import Comparison
from harness.subjects.protocol import Recorder
from harness.subjects.record import NONE, laid_on
from harness.tolerance import REORDERED_F64
from harness.verdict import Verdict

if TYPE_CHECKING:
    from harness.properties.perturb import Inputs
    from harness.subjects.protocol import Subject
    from harness.subjects.record import Record
    from harness.witness import Witness
    from v4model import Pack, PackLayout

_kept: ContextVar[list[Comparison] | None] = ContextVar("comparisons", default=None)


@contextmanager
def comparisons_are_kept() -> Iterator[list[Comparison]]:
    """Within, every comparison that a witness was located by is added to the list, the latest last."""
    kept: list[Comparison] = []
    token = _kept.set(kept)
    try:
        yield kept
    finally:
        _kept.reset(token)


_brief: ContextVar[bool] = ContextVar("witnesses are brief", default=False)


@contextmanager
def witnesses_are_brief() -> Iterator[None]:
    """Within, a violation names a row and no more: no run is spent on who is read, where and why."""
    token = _brief.set(True)
    try:
        yield
    finally:
        _brief.reset(token)


def is_brief() -> bool:
    """Whether only the violation counts, not its explanation."""
    return _brief.get()


def located(
    witness: Witness, subject: Subject, *, before: Inputs, after: Inputs, forbidden: Callable[[int], Tensor]
) -> Witness:
    """The witness of a perturbation with the place where its two runs part, as it is if the subject records nothing.

    forbidden(depth) gives the rows ([T] bool) of that depth (0 trunk) that may not depend on what was perturbed.
    """
    if not isinstance(subject, Recorder):
        return witness
    old, new = (subject.layer_outputs(inputs.pack, embeddings=inputs.embeddings) for inputs in (before, after))
    comparison = Comparison(
        got=new, expected=old, layout=before.pack.layout, config=subject.config, agree=forbidden, bound=0.0
    )
    return _told(witness, comparison)


def localised(
    verdict: Verdict,
    subject: Subject,
    *,
    layout: PackLayout,
    got: Callable[[Recorder], Record],
    expected: Callable[[Recorder], Record],
    agree: Callable[[int], Tensor] | None = None,
    bound: float | None = None,
) -> Verdict:
    """A verdict about two runs that should agree, with the place where their records part.

    UNDECIDED if all that parts them is a choice that rounding decides.

    agree(depth): the rows ([T] bool) that should; every real token by default. bound: by how much, where that is
    computed; the runs then choose alike, and none is left to rounding.

    The records are made only for a violated verdict of a subject that records.
    """
    if verdict.witness is None or is_brief() or not isinstance(subject, Recorder):
        return verdict
    comparison = Comparison(
        got=got(subject),
        expected=expected(subject),
        layout=layout,
        config=subject.config,
        agree=agree or (lambda _depth: layout.real),
        bound=REORDERED_F64 if bound is None else bound,
    )
    reason = decided_by_rounding(comparison) if bound is None else None
    return replace(verdict, witness=_told(verdict.witness, comparison)) if reason is None else Verdict.undecided(reason)


def moved_back(recorder: Recorder, moved: Inputs, *, moved_to: Tensor, pack: Pack) -> Record:
    """The record of samples laid out in another way (`runs.laid_out`), at their places in the pack that they are from.

    moved_to: [real tokens] where each real token of `pack` lies in the moved one.
    """
    tokens = torch.full((moved.pack.layout.total,), NONE)
    tokens[moved_to] = tokens_of(pack.layout.real)
    record = recorder.layer_outputs(moved.pack, embeddings=moved.embeddings)
    return laid_on([(record, tokens)], total=pack.layout.total)


def _told(witness: Witness, comparison: Comparison) -> Witness:
    kept = _kept.get()
    if kept is not None:
        kept.append(comparison)
    origin = comparison.origin(near=None if witness.query is None else witness.query.token)
    if origin is None:
        return witness
    return replace(witness, branch=origin.branch, layer=origin.layer, at=origin.at, row=origin.row)
