"""The report's sections in their order; each is left out where its night did not run what it tells of."""

from __future__ import annotations

from harness.nightly.blocks import Page
from harness.nightly.findings import find
from harness.nightly.sections.changes import changes_section
from harness.nightly.sections.durations import durations_section
from harness.nightly.sections.failures import failures_section
from harness.nightly.sections.faults import faults_section
from harness.nightly.sections.flakes import flakes_section
from harness.nightly.sections.machine import machine_section
from harness.nightly.sections.numerics import numerics_section
from harness.nightly.sections.outcomes import outcomes_section
from harness.nightly.sections.overview import cards, context, headline, state
from harness.nightly.sections.peers import peers_section
from harness.nightly.sections.provenance import provenance_section
from harness.nightly.sections.strata import strata_section
from harness.nightly.sections.witnesses import witnesses_section
from harness.nightly.view import View


def page_of(view: View) -> Page:
    """All that is to be said of a night."""
    found = find(view)
    sections = (
        changes_section(view, found),
        outcomes_section(view),
        flakes_section(view, found),
        durations_section(view, found),
        numerics_section(view, found),
        strata_section(view),
        faults_section(view),
        peers_section(view),
        witnesses_section(view),
        failures_section(view),
        machine_section(view),
        provenance_section(view),
    )
    return Page(
        title=f"{'Run' if view.night.folder is None else 'Night'} of {view.night.facts.day or 'no date'}",
        state=state(view, found),
        headline=headline(view, found),
        context=context(view),
        cards=cards(view, found),
        sections=[section for section in sections if section is not None],
    )


__all__ = ["page_of"]
