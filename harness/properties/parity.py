"""Ranks compute what one rank computes, and none waits for another for ever."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.properties import Property, register
from harness.properties.locate import is_brief, localised
from harness.properties.measure import draw, place_of, row_differences, tokens_of
from harness.properties.runs import run_with_gradients, shared_run
from harness.properties.tally import Tally, compare_runs
from harness.tolerance import REORDERED_F64, largest_magnitude
from harness.verdict import Verdict
from harness.witness import Witness
from v4model.exchange import RankError

if TYPE_CHECKING:
    from torch import Tensor

    from harness.case import Case
    from harness.corpus import Corpus
    from harness.subjects.protocol import Subject
    from v4model import Pack, PackLayout

CP = "cp_matches_one_rank"
WAITS = "no_rank_waits"


def _cp_matches(subject: Subject, case: Case, corpus: Corpus) -> Verdict:
    one = getattr(subject, "one", None)
    if one is None or case.ranks is None:
        return Verdict.vacuous("the subject runs on no ranks")
    pack = case.pack(corpus)
    embeddings = _embeddings(subject, case, pack)
    try:
        got = shared_run(subject, pack, embeddings=embeddings)
    except RankError as error:
        return Verdict.violated(_disagreement(CP, error, pack.layout, ranks=case.ranks))
    expected = shared_run(one, pack, embeddings=embeddings)
    tally = Tally(CP, bound=REORDERED_F64, layout=pack.layout)
    real = tokens_of(pack.layout.real)
    compare_runs(tally, got, expected, tokens=real, other=real, than="one rank")
    verdict = localised(
        tally.verdict(),
        subject,
        layout=pack.layout,
        got=lambda recorder: recorder.layer_outputs(pack, embeddings=embeddings),
        expected=lambda _: one.layer_outputs(pack, embeddings=embeddings),
    )
    if verdict.witness is None or is_brief():
        return verdict
    witness = verdict.witness
    if witness.query is None:
        witness = _with_row(witness, subject, one, pack)
    add = _with_labels if witness.query is None else _with_rank
    return replace(verdict, witness=add(witness, pack, ranks=case.ranks))


def _no_rank_waits(subject: Subject, case: Case, corpus: Corpus) -> Verdict:
    if case.ranks is None:
        return Verdict.vacuous("the subject runs on no ranks")
    pack = case.pack(corpus)
    try:
        shared_run(subject, pack, embeddings=_embeddings(subject, case, pack))
    except RankError as error:
        return Verdict.violated(_disagreement(WAITS, error, pack.layout, ranks=case.ranks))
    return Verdict.holds(error=0.0, bound=0.0)


def _embeddings(subject: Subject, case: Case, pack: Pack) -> Tensor | None:
    """Half the cases differentiate each embedding, half the table through its lookup on the ranks."""
    return subject.embeddings(pack) if draw(case, CP).random() < 0.5 else None


def _disagreement(name: str, error: RankError, layout: PackLayout, *, ranks: int) -> Witness:
    what = f"{error}{_cuts(layout, ranks=ranks)}"
    return Witness(property=name, branch="exchange", what=what, magnitude=math.inf, bound=0.0)


def _with_row(witness: Witness, subject: Subject, one: Subject, pack: Pack) -> Witness:
    """A finding about a whole tensor with the row at whose embedding the gradient differs most, if any does."""
    embeddings = subject.embeddings(pack)
    got, expected = (run_with_gradients(model, pack, embeddings=embeddings).of_embeddings for model in (subject, one))
    assert got is not None
    assert expected is not None
    differences = row_differences(got, expected)
    if not float(differences.max()) > REORDERED_F64 * largest_magnitude(expected):
        return witness
    query = place_of(pack.layout, int(differences.argmax()))
    return replace(witness, query=query, what=f"{witness.what}, and the gradient at this embedding most of all")


def _with_labels(witness: Witness, pack: Pack, *, ranks: int) -> Witness:
    """The witness of a whole tensor with the cuts, and the number of the trunk's labels on each rank."""
    source = pack.layout.ahead(1)
    labelled = (source >= 0) & pack.supervised[source]
    counts = [int(part.sum()) for part in labelled.split(_size(pack.layout, ranks=ranks))]
    counts += [0] * (ranks - len(counts))
    what = f"{witness.what}{_cuts(pack.layout, ranks=ranks)}; labels by rank: {', '.join(map(str, counts))}"
    return replace(witness, what=what)


def _with_rank(witness: Witness, pack: Pack, *, ranks: int) -> Witness:
    """The witness with the query's rank and its distance from the nearest cut."""
    assert witness.query is not None
    layout, token = pack.layout, witness.query.token
    size = _size(layout, ranks=ranks)
    rank = token // size
    near = [(token - rank * size, "behind", rank * size)] if rank else []
    if rank + 1 < ranks:
        near.append(((rank + 1) * size - 1 - token, "before", (rank + 1) * size))
    where = f"on rank {rank} of {ranks}"
    if near:
        between, side, cut = min(near, key=lambda one: one[0])
        distance = "right" if not between else "1 token" if between == 1 else f"{between} tokens"
        where += f", {distance} {side} the cut at token {cut} ({_place(layout, cut)})"
    return replace(witness, what=f"{witness.what}, {where}")


def _size(layout: PackLayout, *, ranks: int) -> int:
    return -(-layout.total // ranks)


def _cuts(layout: PackLayout, *, ranks: int) -> str:
    size = _size(layout, ranks=ranks)
    cuts = ", ".join(f"token {cut} ({_place(layout, cut)})" for cut in range(size, size * ranks, size))
    return cuts and f"; cut at {cuts}"


def _place(layout: PackLayout, cut: int) -> str:
    """Where the first token behind a cut lies."""
    place = place_of(layout, cut) if cut < layout.total else None
    if place is None or place.sample < 0:
        return "in padding"
    where = "at the start of" if place.position == 0 else f"at position {place.position} of"
    return f"{where} sample {place.sample}"


register(
    Property(
        name=CP,
        about="on context-parallel ranks every value, sum, count and gradient is that of one rank (<= 1e-9)",
        check=_cp_matches,
        ranked=True,
        on_processes=True,
    )
)
register(
    Property(
        name=WAITS,
        about="every rank asks for the same exchanges and rows; a layout that would hang is an error with a name",
        check=_no_rank_waits,
        ranked=True,
        on_processes=True,
    )
)
