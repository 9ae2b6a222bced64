"""Ranks compute what one rank computes, and none waits for another for ever."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.properties import Property, register
from harness.properties.measure import draw, only_float64, tokens_of
from harness.properties.runs import run_with_gradients
from harness.properties.tally import Tally, compare_runs
from harness.tolerance import REORDERED_F64
from harness.verdict import Verdict
from harness.witness import Place, Witness
from v4model.exchange import RankError

if TYPE_CHECKING:
    from harness.case import Case
    from harness.corpus import Corpus
    from harness.subjects.protocol import Subject
    from v4model import PackLayout

CP = "cp_matches_one_rank"
WAITS = "no_rank_waits"


def _cp_matches(subject: Subject, case: Case, corpus: Corpus) -> Verdict:
    one = getattr(subject, "one", None)
    if one is None or case.ranks is None:
        return Verdict.vacuous("the subject runs on no ranks")
    undecided = only_float64(case)
    if undecided is not None:
        return undecided
    pack = case.pack(corpus)
    # Half the cases differentiate each embedding, half the table through its lookup on the ranks.
    embeddings = subject.embeddings(pack) if draw(case, CP).random() < 0.5 else None
    try:
        got = run_with_gradients(subject, pack, embeddings=embeddings)
    except RankError as error:
        return Verdict.violated(_disagreement(CP, error))
    tally = Tally(CP, bound=REORDERED_F64, layout=pack.layout)
    real = tokens_of(pack.layout.real)
    compare_runs(
        tally, got, run_with_gradients(one, pack, embeddings=embeddings), tokens=real, other=real, than="one rank"
    )
    verdict = tally.verdict()
    if verdict.witness is None:
        return verdict
    return replace(verdict, witness=_with_rank(verdict.witness, pack.layout, ranks=case.ranks))


def _no_rank_waits(subject: Subject, case: Case, corpus: Corpus) -> Verdict:
    if case.ranks is None:
        return Verdict.vacuous("the subject runs on no ranks")
    pack = case.pack(corpus)
    try:
        run_with_gradients(subject, pack, embeddings=subject.embeddings(pack))
    except RankError as error:
        return Verdict.violated(_disagreement(WAITS, error))
    return Verdict.holds(error=0.0, bound=0.0)


def _disagreement(name: str, error: RankError) -> Witness:
    return Witness(property=name, branch="exchange", what=str(error), magnitude=math.inf, bound=0.0)


def _with_rank(witness: Witness, layout: PackLayout, *, ranks: int) -> Witness:
    """The witness with the query's rank and its distance from the cut before it."""
    if witness.query is None:
        return witness
    size = -(-layout.total // ranks)
    rank, behind = divmod(witness.query.token, size)
    cut = "" if rank == 0 else f", {behind} tokens behind the cut at token {rank * size} ({_cut(layout, rank * size)})"
    return replace(witness, what=f"{witness.what}, on rank {rank} of {ranks}{cut}")


def _cut(layout: PackLayout, token: int) -> str:
    place = Place(int(layout.sample[token]), int(layout.position[token]), token)
    if place.sample < 0:
        return "in padding"
    return f"at a sample's start: {place}" if place.position == 0 else f"inside {place}"


register(
    Property(
        name=CP,
        about="on context-parallel ranks every value, sum, count and gradient is that of one rank (<= 1e-9)",
        check=_cp_matches,
        ranked=True,
    )
)
register(
    Property(
        name=WAITS,
        about="every rank asks for the same exchanges and rows; a layout that would hang is an error with a name",
        check=_no_rank_waits,
        ranked=True,
    )
)
