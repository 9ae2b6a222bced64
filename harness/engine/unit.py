"""What is needed to search a unit, in this process or in another."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from harness.case import DTYPES, Case
from harness.catalogue import find_fault, find_property, find_subject
from harness.corpus import Corpus
from harness.engine.decide import decide_together, decided_in, describe_error
from harness.engine.profiles import Profile
from harness.engine.row import Row, Unit
from harness.engine.search import search
from harness.errors import CRASHES
from harness.properties import Property
from harness.report import UnitResult
from harness.strata import strata_of
from harness.strategies.cuts import ranked_cases
from harness.strategies.packs import cases
from harness.subjects.support import kept_clear, unsupported_by
from harness.verdict import Outcome, Verdict


@dataclass(frozen=True, kw_only=True)
class Work:
    """What all units of a run share; names instead of objects, so that it travels to other processes."""

    subject: str
    profile: Profile
    corpus: Corpus
    seed: int | None
    fault: str | None


def search_unit(work: Work, unit: Unit) -> tuple[UnitResult, ...]:
    """Search one unit, a result a row; whatever goes wrong outside the checks makes all rows UNDECIDED."""
    try:
        properties = {row.property_name: find_property(row.property_name) for row in unit.rows}
        factory = find_subject(work.subject)
        fault = None if work.fault is None else find_fault(work.fault)

        def judge(case: Case, rows: Sequence[Row]) -> list[tuple[Verdict, float]]:
            asked = [(properties[row.property_name], row.at(case)) for row in rows]
            return decide_together(asked, factory, work.corpus, fault=fault)

        return search(
            unit,
            cases=cases_of(work, unit, tuple(properties.values())),
            judge=judge,
            strata=lambda case: strata_of(case, case.pack(work.corpus)),
            profile=work.profile,
            layouts=unit.layouts or work.profile.cases_per_kind,
            seed=work.seed,
        )
    except CRASHES as error:  # one unit's trouble must not cost the others' results
        return undecided_unit(unit, describe_error(error))


def cases_of(work: Work, unit: Unit, properties: Collection[Property]) -> st.SearchStrategy[Case]:
    """What the rows of a unit are asked about, on the largest number of ranks among them.

    Cases are kept clear of what the subject declares unsupported, where that can be: the rest is undecided.
    """
    size = work.profile.size
    unsupported = unsupported_by(find_subject(work.subject))
    allowed = [decided_in(prop, unsupported) for prop in properties]
    # What the subject has no dtype for is left open in any.
    decidable = [those for those in allowed if not unsupported.keys() >= set(those)]
    # Where the rows have none in common the verdict says so, case by case.
    dtypes = [dtype for dtype in DTYPES if decidable and all(dtype in those for those in decidable)] or DTYPES[:1]
    natural = work.corpus.natural_lengths(at_most=size.max_tokens)
    ranks = unit.most_ranks
    if ranks is None:
        return _clear_of(unsupported, cases(unit.kind, size=size, natural=natural, dtypes=dtypes))
    on_ranks = ranked_cases(unit.kind, ranks=ranks, size=size, natural=natural, dtypes=dtypes)
    # One sample over all ranks is a corner for ranks, and says nothing of neighbours.
    about_ranks = all(prop.ranked for prop in properties)
    return _clear_of(unsupported, on_ranks if about_ranks else on_ranks.filter(lambda case: len(case.lengths) > 1))


def _clear_of(unsupported: Mapping[str, str], drawn: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    return drawn.map(lambda case: kept_clear(case, unsupported)) if unsupported else drawn


def undecided_unit(unit: Unit, reason: str) -> tuple[UnitResult, ...]:
    """The results of a unit that could not be searched."""
    return tuple(
        UnitResult(
            property_name=row.property_name,
            kind=unit.kind + row.place,
            outcome=Outcome.UNDECIDED,
            reasons={reason: 1},
        )
        for row in unit.rows
    )
