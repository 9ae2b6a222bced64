"""Whether a run says enough to be judged. This comes first: a part of a run must never look like a whole one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from harness.baseline.key import differences, key_of
from harness.baseline.outcomes import IDLE, RED
from harness.baseline.run import Problem, Run
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


def problems_of(run: Run, base: Baseline, *, key: str | None, limits: Limits, today: date) -> tuple[Problem, ...]:
    """Every reason why this run cannot be compared with this baseline, what is wrong with the run itself first."""
    return (*own_problems(run, base, limits=limits), *_comparison(run, base, key, limits, today))


def own_problems(run: Run, base: Baseline, *, limits: Limits) -> tuple[Problem, ...]:
    """What is wrong with the run, whatever it is compared with; the baseline says only what is usual."""
    found = list(run.problems)
    if not run.results and not found:
        found.append(Problem(kind="empty", sentence="the run holds no test"))
    found += _exit_codes(run)
    found += _idle(run, base, limits)
    found += _red(run, base, limits)
    return tuple(found)


def _exit_codes(run: Run) -> Iterator[Problem]:
    red = sum(result.outcome in RED for result in run.results.values())
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
    def share(results: list[bool]) -> float:
        return 100 * sum(results) / max(len(results), 1)

    tried = [r.outcome in RED for r in run.results.values() if r.outcome not in IDLE]
    usual = share([r.outcome in RED for r in base.results.values() if r.outcome not in IDLE])
    if len(tried) >= _FEW_TESTS and share(tried) > limits.failing >= usual:
        said = f"{sum(tried)} of {len(tried)} tests are red ({share(tried):.0f}%, {limits.failing:g}% allowed)"
        yield Problem(kind="infrastructure", sentence=f"{said}: is the machine or the installation broken?")


def _comparison(run: Run, base: Baseline, key: str | None, limits: Limits, today: date) -> Iterator[Problem]:
    if key is not None and base.key is not None and key != base.key:
        yield Problem(kind="key", sentence=f"this run is of {key}, the baseline of {base.key}")
    elif key_of(run.facts) and key_of(base.facts) and (other := differences(base.facts, run.facts or {})):
        yield Problem(kind="key", sentence=f"another configuration than the baseline's: {'; '.join(other)}")
    same_selection = run.selection is not None and run.selection == base.selection
    if run.selection is not None and base.selection is not None and not same_selection:
        said = f"this run was asked for {run.selection}, the baseline's for {base.selection}"
        yield Problem(kind="selection", sentence=f"other tests were asked for: {said}")
    if not (run.counts_itself and same_selection):
        yield from _missing(run, base, limits)
    yield from _age(base, limits, today)


def _missing(run: Run, base: Baseline, limits: Limits) -> Iterator[Problem]:
    missing = base.results.keys() - run.results.keys()
    share = 100 * len(missing) / max(len(base.results), 1)
    if run.results and share > limits.missing:
        said = f"{len(missing)} of the baseline's {len(base.results)} tests are missing"
        hint = _other_root(run, base) or "is it a part of a run?"
        yield Problem(kind="partial", sentence=f"{said} ({share:.0f}%, {limits.missing:g}% allowed): {hint}")


def _other_root(run: Run, base: Baseline) -> str:
    """A hint when ids differ only in the folders in front."""
    one, other = min(base.results), min(run.results)
    for short, long, in_run in ((one, run.results, True), (other, base.results, False)):
        longer = next((i for i in long if i.endswith("/" + short) or i.endswith("." + short)), None)
        if longer is not None:
            who = "this run has" if in_run else "the baseline has"
            return f"{who} {longer[: -len(short)]!r} in front of ids; was pytest's root another folder?"
    return ""


def _age(base: Baseline, limits: Limits, today: date) -> Iterator[Problem]:
    if limits.oldest_days is None:
        return
    if not base.date:
        yield Problem(kind="old", sentence="the baseline does not say how old it is")
    elif (days := (today - date.fromisoformat(base.date)).days) > limits.oldest_days:
        yield Problem(kind="old", sentence=f"the baseline is {days} days old ({limits.oldest_days} allowed)")
