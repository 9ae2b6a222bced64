"""Which corners of the layouts were seen, the rarest first."""

from __future__ import annotations

import math
import statistics

from harness.nightly.blocks import Cell, Section, Table
from harness.nightly.view import View
from harness.nightly.wording import count, listed

_SHOWN = 25


def strata_section(view: View) -> Section | None:
    """Left out where no layout was drawn."""
    summary = view.summary
    if not summary.strata and not summary.unmet_strata:
        return None
    counts = {**summary.strata, **dict.fromkeys(summary.unmet_strata, 0)}
    lead = f"{count(len(summary.strata), 'stratum', 'strata')} met"
    unmet = list(summary.unmet_strata)
    lead += f"; nothing is known of {listed(unmet)}." if unmet else ", none that is wanted is missing."
    rarest = sorted(counts, key=lambda name: (counts[name], name))
    table = Table(
        caption="Layouts by stratum, the rarest first",
        columns=("stratum", "layouts", "usually", "share of the most frequent"),
        rows=[_row(view, name, counts[name], max(counts.values())) for name in rarest[:_SHOWN]],
        hidden=max(len(rarest) - _SHOWN, 0),
    )
    return Section(id="strata", title="Strata", lead=lead, blocks=[table], tone="warn" if unmet else "")


def _row(view: View, name: str, layouts: int, most: int) -> list[Cell]:
    usual = [view.nights.summaries[number].strata.get(name, 0) for number in view.before]
    usually = statistics.median(usual) if usual else math.nan
    share = layouts / most if most else 0.0
    return [
        Cell(name),
        Cell(f"{layouts:,}", tone="" if layouts else "bad", value=layouts),
        Cell("-" if math.isnan(usually) else f"{usually:,.0f}", value=None if math.isnan(usually) else usually),
        Cell(f"{share:.1%}", value=share),
    ]
