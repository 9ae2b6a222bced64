"""The top of the report: one sentence, and cards with how much they differ from the last night and from before."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness.baseline.outcomes import IDLE, RED
from harness.baseline.outcomes import Outcome as TestOutcome
from harness.nightly.blocks import Card
from harness.nightly.findings import CAUGHT, Findings
from harness.nightly.summary import Summary
from harness.nightly.view import View
from harness.nightly.wording import count, seconds, share, signed
from harness.verdict import Outcome


def state(view: View, found: Findings) -> str:
    """passed, failed or undecided."""
    if not view.summary.is_valid:
        return "undecided"
    outcomes = view.summary.properties().values()
    faults = {CAUGHT.get(verdict, 1) for verdict in view.summary.faults.values()}
    stages = {stage.verdict for stage in view.night.facts.stages}
    bad = found.regressions or Outcome.VIOLATED in outcomes or 2 in faults or "failed" in stages
    bad = bad or bool((view.night.faults or {}).get("idle"))
    bad = bad or (found.diff is not None and found.diff.exit_code == 1)
    bad = bad or (found.diff is None and bool(view.summary.reasons))
    if bad:
        return "failed"
    nothing = not (view.results or outcomes or faults or view.night.odds)
    doubtful = nothing or Outcome.UNDECIDED in outcomes or 1 in faults or "undecided" in stages
    return "undecided" if doubtful or (found.diff is not None and found.diff.exit_code != 0) else "passed"


def headline(view: View, found: Findings) -> str:
    """The night in one sentence."""
    if not view.summary.is_valid:
        return f"Nothing can be decided: {view.summary.validity}"
    news = [count(found.regressions, "regression") if view.before else ""]
    news += [count(found.flakes, "flake") if found.flakes else ""]
    news += [f"{count(len(found.drifts), 'error')} {'drifts' if len(found.drifts) == 1 else 'drift'}"] * bool(
        found.drifts
    )
    news += [f"{count(len(found.slower), 'test')} slower and slower" if found.slower else ""]
    news += ["not comparable with the baseline"] * (found.diff is not None and found.diff.exit_code == 3)
    first, rest = ", ".join(word for word in news if word), ", ".join(_state_of(view))
    return "; ".join(part for part in (first, rest) if part) or "Nothing was run"


def _state_of(view: View) -> Iterator[str]:
    if view.results:
        passed, tried = _passed(view)
        yield f"{passed:,} of {count(tried, 'test')} pass"
    outcomes = list(view.summary.properties().values())
    if outcomes:
        yield f"{outcomes.count(Outcome.HOLDS)} of {count(len(outcomes), 'property holds', 'properties hold')}"
    if view.summary.faults:
        caught, planted = _caught(view.summary)
        yield f"{caught} of {count(planted, 'fault')} {'is' if caught == 1 else 'are'} caught"


def context(view: View) -> str:
    """Which night, and what it is compared with."""
    facts = view.night.facts
    commit = view.summary.commit[:20]
    others = [f"the night of {view.last.started[:10]}"] if view.last else []
    if view.baseline is not None:
        others.append(f"{view.baseline.source} ({view.baseline.date})" if view.baseline.date else view.baseline.source)
    compared = f"compared with {' and '.join(others)}" if others else "no night before to compare with"
    parts = (f"{facts.started[:16].replace('T', ' ')} UTC" if facts.started else facts.stamp, commit, facts.device)
    kept = f"{count(len(view.nights.summaries), 'night')} known, {len(view.counted)} in trends"
    return f"{', '.join(part for part in parts if part)}; {compared}; {kept}."


def _passed(view: View) -> tuple[int, int]:
    outcomes = [result.outcome for result in view.results.values()]
    return outcomes.count(TestOutcome.PASS), sum(outcome not in IDLE for outcome in outcomes)


def _caught(summary: Summary) -> tuple[int, int]:
    verdicts = [summary.faults[name] for name in summary.planted]
    return verdicts.count("caught"), len(verdicts)


@dataclass(frozen=True, kw_only=True)
class _Figure:
    """A figure of any night. better: +1 if more is better, -1 if less is, 0 if neither; show: how a value is told."""

    label: str
    of: Callable[[View, int], float | None]
    better: int
    link: str
    show: Callable[[float], str] = "{:,.0f}".format
    whole: Callable[[View, int], float | None] = lambda _view, _night: None


def _red(view: View, night: int) -> float | None:
    return float(view.nights.red[night].sum()) if view.nights.codes[night].any() else None


def _holding(view: View, night: int) -> float | None:
    outcomes = list(view.nights.summaries[night].properties().values())
    return float(outcomes.count(Outcome.HOLDS)) if outcomes else None


def _properties(view: View, night: int) -> float | None:
    return float(len(view.nights.summaries[night].properties()))


def _faults(view: View, night: int) -> float | None:
    caught, planted = _caught(view.nights.summaries[night])
    return float(caught) if planted else None


def _planted(view: View, night: int) -> float | None:
    return float(_caught(view.nights.summaries[night])[1])


def _layouts(view: View, night: int) -> float | None:
    measured = view.nights.summaries[night].measured
    return float(sum(one.layouts for one in measured)) if measured else None


def _nearest(view: View, night: int) -> float | None:
    return max((one.share for one in view.nights.summaries[night].measured if one.share is not None), default=None)


def _strata(view: View, night: int) -> float | None:
    each = view.nights.summaries[night]
    return float(each.wanted_strata - len(each.unmet_strata)) if each.wanted_strata else None


def _wanted(view: View, night: int) -> float | None:
    return float(view.nights.summaries[night].wanted_strata)


def _time(view: View, night: int) -> float | None:
    total = float(view.nights.millis[night].sum()) / 1000
    return total or None


_FIGURES = (
    _Figure(label="Red tests", of=_red, better=-1, link="failures"),
    _Figure(label="Properties that hold", of=_holding, whole=_properties, better=1, link="numerics"),
    _Figure(label="Faults caught", of=_faults, whole=_planted, better=1, link="faults"),
    _Figure(label="Largest error / bound", of=_nearest, better=-1, show=share, link="numerics"),
    _Figure(label="Strata met", of=_strata, whole=_wanted, better=1, link="strata"),
    _Figure(label="Layouts checked", of=_layouts, better=0, link="strata"),
    _Figure(label="Time of all tests", of=_time, better=-1, show=seconds, link="durations"),
)


def cards(view: View, found: Findings) -> list[Card]:
    """One card a figure that the night has, and one for flakes."""
    made = [card for figure in _FIGURES if (card := _card(view, figure)) is not None]
    if view.results and view.before:
        flakes = Card(
            label="Flakes",
            value=f"{found.flakes:,}",
            tone="warn" if found.flakes else "good",
            deltas=[(f"in {count(len(found.shown), 'night')}", "mute")],
            link="flakes",
        )
        made.insert(1, flakes)
    return made


def _card(view: View, figure: _Figure) -> Card | None:
    newest = len(view.nights.summaries) - 1
    value = figure.of(view, newest)
    if value is None:
        return None
    whole = figure.whole(view, newest)
    deltas = []
    if view.summary.is_valid and view.before:
        if (last := figure.of(view, view.before[-1])) is not None:
            deltas.append((*_delta(value, last, figure), "vs last night"))
        deltas.append((*_reference(view, value, figure), ""))
    return Card(
        label=figure.label,
        value=figure.show(value) + (f" of {whole:,.0f}" if whole else ""),
        tone=_tone(view, figure, value, whole),
        deltas=[(f"{text} {name}".strip(), tone) for text, tone, name in deltas if text],
        link=figure.link,
    )


def _tone(view: View, figure: _Figure, value: float, whole: float | None) -> str:
    """Good or bad where there is a right value: the whole of something, or no more red tests than the baseline."""
    if not view.summary.is_valid:
        return "mute"
    if figure.of is _red:
        return "bad" if value > _base_red(view) else "good"
    return "mute" if whole is None else "bad" if value < whole else "good"


def _base_red(view: View) -> float:
    results = () if view.baseline is None else view.baseline.results.values()
    return float(sum(result.outcome in RED for result in results))


def _reference(view: View, value: float, figure: _Figure) -> tuple[str, str]:
    """The difference from the baseline for red tests, from the usual night for what no baseline knows."""
    if figure.of is _red and view.baseline is not None:
        text, tone = _delta(value, _base_red(view), figure)
        return f"{text} vs baseline", tone
    known = [told for night in view.before if (told := figure.of(view, night)) is not None]
    if len(known) < 2:
        return "", ""
    text, tone = _delta(value, statistics.median(known), figure)
    return f"{text} vs usual", tone


def _delta(value: float, before: float, figure: _Figure) -> tuple[str, str]:
    change = value - before
    tone = "mute" if not change or not figure.better else "good" if change * figure.better > 0 else "bad"
    if figure.better and abs(change) < 0.1 * abs(before) and figure.show is not _FIGURES[0].show:
        tone = "mute"  # a time or an error is never twice the same
    return signed(change, figure.show(abs(change))), tone
