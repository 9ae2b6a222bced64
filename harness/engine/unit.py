"""Units of a run and what is needed to search one, in this process or in another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from harness.case import Case
from harness.catalogue import find_fault, find_property, find_subject
from harness.corpus import Corpus
from harness.engine.decide import decide, describe_error
from harness.engine.profiles import Profile
from harness.engine.search import search
from harness.properties import Property
from harness.report import UnitResult
from harness.strata import cut_strata
from harness.strategies.cuts import ranked_cases
from harness.strategies.packs import cases
from harness.verdict import Outcome


@dataclass(frozen=True)
class Unit:
    """One property on one named configuration, on ranks or not.

    layouts: how many to draw, None for the profile's cases_per_kind.
    """

    property_name: str
    kind: str
    ranks: int | None = None
    processes: bool = False
    layouts: int | None = None

    @property
    def label(self) -> str:
        """The configuration and its ranks, as replay tokens write them: "all@4p"."""
        return self.kind if self.ranks is None else f"{self.kind}@{self.ranks}{'p' if self.processes else ''}"


@dataclass(frozen=True, kw_only=True)
class Work:
    """What all units of a run share; names instead of objects, so that it travels to other processes."""

    subject: str
    profile: Profile
    corpus: Corpus
    seed: int | None
    fault: str | None


def search_unit(work: Work, unit: Unit) -> UnitResult:
    """Search one unit; whatever goes wrong outside the check itself makes it UNDECIDED too."""
    try:
        prop = find_property(unit.property_name)
        factory = find_subject(work.subject)
        fault = None if work.fault is None else find_fault(work.fault)
        return search(
            unit.property_name,
            unit.label,
            cases=_cases(work, unit, prop),
            check=lambda case: decide(prop, factory, case, work.corpus, fault=fault),
            strata=lambda case: cut_strata(case, case.pack(work.corpus)),
            profile=work.profile,
            layouts=unit.layouts or work.profile.cases_per_kind,
            seed=work.seed,
        )
    except Exception as error:  # one unit's trouble must not cost the others' results
        return undecided_unit(unit, describe_error(error))


def _cases(work: Work, unit: Unit, prop: Property) -> st.SearchStrategy[Case]:
    size = work.profile.size
    natural = work.corpus.natural_lengths(at_most=size.max_tokens)
    if unit.ranks is None:
        return cases(unit.kind, size=size, natural=natural)
    on_ranks = ranked_cases(unit.kind, ranks=unit.ranks, processes=unit.processes, size=size, natural=natural)
    # One sample over all ranks is a corner for ranks, and says nothing of neighbours.
    return on_ranks if prop.ranked else on_ranks.filter(lambda case: len(case.lengths) > 1)


def undecided_unit(unit: Unit, reason: str) -> UnitResult:
    """The result of a unit that could not be searched."""
    return UnitResult(property_name=unit.property_name, kind=unit.label, outcome=Outcome.UNDECIDED, reasons={reason: 1})


def search_here(work: Work, units: Sequence[Unit]) -> Iterator[tuple[Unit, UnitResult]]:
    """Search units one after another in this process, on one thread; yields each as it finishes."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for unit in units:
            yield unit, search_unit(work, unit)
    finally:
        torch.set_num_threads(threads)
