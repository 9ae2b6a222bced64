"""Whether a run says enough to be judged. This comes first: a part of a run must never look like a whole one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date

from harness.baseline.key import differences, key_of
from harness.baseline.outcomes import IDLE, RED, Outcome
from harness.baseline.run import Problem, Result, Run
from harness.baseline.store import Baseline

_PYTEST = {
    2: "pytest was interrupted",
    3: "pytest had an internal error",
    4: "pytest could not start",
    5: "pytest found no test",
}
_FEW_TESTS = 10  # a share of fewer tests says nothing about the machine


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Shares, in percent, above which a run counts as broken; oldest_days None allows any age."""

    missing: float = 10.0
    skipped: float = 50.0
    failing: float = 80.0
    oldest_days: int | None = None


def problems_of(
    run: Run, base: Baseline, *, missing: int, key: str | None, limits: Limits, today: date
) -> tuple[Problem, ...]:
    """Every reason why this run cannot be compared with this baseline, what is wrong with the run itself first.

    missing is how many of the baseline's tests are nowhere in the run, not even skipped or under another name.
    """
    found = list(run.problems)
    if not run.results and not found:
        found.append(Problem(kind="empty", sentence="the run holds no test"))
    found += _exit_codes(run)
    found += _idle(run, base, limits)
    found += _red(run, base, limits)
    found += _configuration(run, base, key)
    found += _selection(run, base, missing, limits)
    found += _age(base, limits, today)
    return tuple(found)


def _exit_codes(run: Run) -> Iterator[Problem]:
    red = _tried_and_red(run.results)[1]
    for code in run.exit_codes:
        if code not in (0, 1):
            meaning = _PYTEST.get(code, "pytest was killed, or never ran")
            yield Problem(kind="exit", sentence=f"{meaning} (it returned {code})")
    if run.exit_codes and set(run.exit_codes) == {0} and red:
        tests = f"{red} test is" if red == 1 else f"{red} tests are"
        yield Problem(kind="exit", sentence=f"pytest returned 0 although {tests} red")
    if 1 in run.exit_codes and not red and not run.problems:
        yield Problem(kind="exit", sentence="pytest returned 1 although no test is red: something else failed")


def _idle(run: Run, base: Baseline, limits: Limits) -> Iterator[Problem]:
    idle = [i for i, result in run.results.items() if result.outcome in IDLE]
    newly = [i for i in idle if i not in base.results or base.results[i].outcome not in IDLE]
    share = 100 * len(newly) / max(len(run.results), 1)
    if idle and len(idle) == len(run.results):
        yield Problem(kind="skipped", sentence=f"all {len(idle)} tests were skipped: nothing was tried")
    elif share > limits.skipped:
        said = f"{len(newly)} of {len(run.results)} tests are newly skipped ({share:.0f}%, {limits.skipped:g}% allowed)"
        yield Problem(kind="skipped", sentence=f"{said}: is a gate closed?")


def _red(run: Run, base: Baseline, limits: Limits) -> Iterator[Problem]:
    tried, red = _tried_and_red(run.results)
    usually_tried, usually_red = _tried_and_red(base.results)
    share, usual = 100 * red / max(tried, 1), 100 * usually_red / max(usually_tried, 1)
    if tried >= _FEW_TESTS and share > limits.failing >= usual:
        said = f"{red} of {tried} tests are red ({share:.0f}%, {limits.failing:g}% allowed)"
        yield Problem(kind="infrastructure", sentence=f"{said}: is the machine or the installation broken?")


def _tried_and_red(results: Mapping[str, Result]) -> tuple[int, int]:
    counted = Counter([result.outcome for result in results.values()])
    return len(results) - sum(counted[outcome] for outcome in IDLE), sum(counted[outcome] for outcome in RED)


def _configuration(run: Run, base: Baseline, key: str | None) -> Iterator[Problem]:
    if key is not None and base.key is not None and key != base.key:
        yield Problem(kind="key", sentence=f"this run is of {key}, the baseline of {base.key}")
    if key_of(run.facts) and key_of(base.facts) and (other := differences(base.facts, run.facts or {})):
        yield Problem(kind="key", sentence=f"another configuration than the baseline's: {'; '.join(other)}")


def _selection(run: Run, base: Baseline, missing: int, limits: Limits) -> Iterator[Problem]:
    """A part of the tests: one that says so, or one that shows by what is missing.

    A run that counts its tests and was asked for the same ones has lost none; what is missing there was removed.
    """
    if not run.results or not base.results:
        return
    same = run.selection is not None and run.selection == base.selection
    if run.selection is not None and base.selection is not None and not same:
        said = f"pytest {run.selection}; the baseline's was pytest {base.selection}"
        yield Problem(kind="selection", sentence=f"other tests were asked for: {said}")
    if run.results.keys().isdisjoint(base.results):
        sentence = f"the run has none of the baseline's {len(base.results)} tests: {_other_root(run, base)}"
        yield Problem(kind="ids", sentence=sentence)
    elif missing and not (run.counts_itself and same):
        yield from _missing(run, base, missing, limits)


def _missing(run: Run, base: Baseline, missing: int, limits: Limits) -> Iterator[Problem]:
    """Too many are missing, or any in a run that shows a way to lose some; a caller who allows 100% knows better."""
    share = 100 * missing / len(base.results)
    said = f"{missing} of the baseline's {len(base.results)} tests {'is' if missing == 1 else 'are'} missing"
    whole = "If it was not, say --max-missing 100"
    if share > limits.missing:
        hint = f"({share:.0f}%, {limits.missing:g}% allowed): is it a part of a run?"
        yield Problem(kind="partial", sentence=f"{said} {hint}")
    elif limits.missing < 100 and any(result.outcome is Outcome.CRASH for result in run.results.values()):
        yield Problem(kind="lost", sentence=f"{said} and a worker crashed: was something lost with it? {whole}")
    elif limits.missing < 100 and run.ends_red:
        yield Problem(kind="stopped", sentence=f"{said} and the last one that ran failed: did it stop there? {whole}")


def _other_root(run: Run, base: Baseline) -> str:
    """A hint when ids differ only in the folders in front."""
    one, other = min(base.results), min(run.results)
    for short, long, in_run in ((one, run.results, True), (other, base.results, False)):
        longer = next((i for i in long if i.endswith("/" + short) or i.endswith("." + short)), None)
        if longer is not None:
            who = "this run has" if in_run else "the baseline has"
            return f"{who} {longer[: -len(short)]!r} in front of ids; was pytest's root another folder?"
    return "is it a run of another project?"


def _age(base: Baseline, limits: Limits, today: date) -> Iterator[Problem]:
    if limits.oldest_days is None:
        return
    if not base.date:
        yield Problem(kind="old", sentence="the baseline does not say how old it is")
    elif (days := (today - date.fromisoformat(base.date)).days) > limits.oldest_days:
        yield Problem(kind="old", sentence=f"the baseline is {days} days old ({limits.oldest_days} allowed)")
