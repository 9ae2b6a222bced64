"""A run on a terminal: one row a property, the headline, and what was violated or left undecided."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.report.run import PropertySummary, Report
from harness.report.units import UnitResult
from harness.verdict import Outcome

_RAREST_SHOWN = 5

_STYLES = {
    Outcome.HOLDS: "green",
    Outcome.VIOLATED: "bold red",
    Outcome.VACUOUS: "yellow",
    Outcome.UNDECIDED: "magenta",
}


def print_report(console: Console, report: Report) -> None:
    """Print the table (readable at 80 columns), the headline, then a paragraph for each unit that does not hold."""
    console.print(_heading(report), style="dim", highlight=False, markup=False, soft_wrap=True)
    console.print(_table(report.summaries))
    if report.strata:
        console.print(_strata(report))
    console.print(Text(report.headline, style=_STYLES[report.outcome]), soft_wrap=True)
    for unit in report.units:
        if unit.outcome in (Outcome.VIOLATED, Outcome.UNDECIDED):
            _print_unit(console, report, unit)
    for summary in report.summaries:
        if summary.outcome is Outcome.VACUOUS:
            reason = max(summary.units, key=lambda unit: unit.layouts).reason
            _line(console, f"VACUOUS {summary.name}: {reason}", style=_STYLES[Outcome.VACUOUS])
    _line(console, f"Written to {report.folder}: results.jsonl, report.json, junit.xml", style="dim")


def _heading(report: Report) -> str:
    corpus = report.corpus
    seed = "" if report.seed is None else f", seed {report.seed}"
    return (
        f"{report.subject}, profile {report.profile}{seed}; text: {corpus['name']} ({corpus['digest']}), "
        f"{corpus['samples']:,} samples, {corpus['tokens']:,} tokens, tokenizer of {corpus['tokenizer_vocabulary']:,} "
        "ids folded to the model's vocabulary"
    )


def _table(summaries: tuple[PropertySummary, ...]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("property", overflow="fold")
    for name in ("layouts", "holds/\nvacuous", "largest error\n/ bound", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for summary in summaries:
        table.add_row(
            summary.name,
            str(summary.layouts),
            f"{summary.counts[Outcome.HOLDS]}/{summary.counts[Outcome.VACUOUS]}",
            _measured(summary.error, summary.bound),
            f"{summary.seconds:.1f}",
            Text(summary.outcome.value, style=_STYLES[summary.outcome]),
        )
    return table


def _strata(report: Report) -> Text:
    """All strata where the run has to meet them, else the rarest."""
    rarest = sorted(report.strata.items(), key=lambda one: (one[1], one[0]))
    if report.wanted_strata:
        met = f"{len(report.wanted_strata) - len(report.unmet_strata)} of {len(report.wanted_strata)} strata met"
    else:
        met, rarest = f"{len(rarest)} strata met", rarest[:_RAREST_SHOWN]
    counted = ", ".join(f"{name} {count:,}" for name, count in rarest)
    return Text(f"{met}; layouts, rarest first: {counted}.")


def _measured(error: float | None, bound: float | None) -> str:
    if error is None or bound is None:
        return "-"
    return f"{_short(error)} / {_short(bound)}"


def _short(value: float) -> str:
    return "0" if value == 0 else f"{value:.0e}"


def _print_unit(console: Console, report: Report, unit: UnitResult) -> None:
    console.print()
    style = _STYLES[unit.outcome]
    told = [f"on {unit.kind}: {finding.witness.sentence()}" for finding in unit.findings]
    told = told or [f"{unit.property_name} on {unit.kind}: {unit.reason}"]
    commands = report.replay_commands(unit)
    for number, sentence in enumerate(told):
        _line(console, f"{unit.outcome.value} {sentence}", style=style)
        if number < len(commands):
            _line(console, f"  {commands[number]}", style="")


def _line(console: Console, text: str, *, style: str) -> None:
    # No wrapping: a command that is copied from the terminal must stay one line.
    console.print(Text(text, style=style), soft_wrap=True)
