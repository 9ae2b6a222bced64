"""Stages one after another: budgets, steps that break, and going on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.conduct import turns
from harness.conduct.child import Ended
from harness.conduct.record import NightRecord, StageRecord, read_record
from harness.conduct.turns import Conductor, Listener, Stage
from suites.harness.conduct.fake_night import stage
from suites.harness.conduct.test_record import NIGHT


class Clock:
    """In place of child processes: each step takes as long as is said, or is stopped when its time is over."""

    def __init__(self, takes_s: float) -> None:
        self.takes_s = takes_s
        self.limits: list[float | None] = []

    def run_child(self, command: tuple[str, ...], *, limit_s: float | None, **_: object) -> Ended:
        self.limits.append(None if limit_s is None else round(limit_s, 1))
        if limit_s is not None and limit_s < self.takes_s:
            return Ended(code=130, stopped=True, seconds=limit_s)
        Path(command[-1]).touch()
        return Ended(code=0, stopped=False, seconds=self.takes_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock(10.0)
    monkeypatch.setattr(turns, "run_child", found.run_child)
    return found


def conducted(folder: Path, night: NightRecord, *stages: Stage) -> dict[str, StageRecord]:
    conductor = Conductor(folder, night, Listener())
    conductor.conduct(stages)
    assert read_record(folder) == conductor.record
    return {each.name: each for each in conductor.record.stages}


def test_a_stage_that_ends_early_passes_its_time_on(tmp_path: Path, clock: Clock) -> None:
    night = replace(NIGHT, budget_s=100.0)
    found = conducted(tmp_path, night, stage(tmp_path, "suites", steps=1), stage(tmp_path, "fuzz", steps=2))
    assert [each.share_s for each in found.values()] == [50.0, 90.0]
    assert [(each.status, each.seconds) for each in found.values()] == [("done", 10.0), ("done", 20.0)]
    assert clock.limits == [50.0, 90.0, 80.0]


def test_a_stage_gets_at_most_its_share(tmp_path: Path, clock: Clock) -> None:
    night = replace(NIGHT, budget_s=12.0)
    found = conducted(tmp_path, night, stage(tmp_path, "suites", steps=1), stage(tmp_path, "fuzz", steps=1))
    assert (found["suites"].status, found["suites"].seconds) == ("stopped", 6.0)
    assert found["suites"].reason == "the budget was over; 0 steps of seed 0, cut"
    assert clock.limits == [6.0, 6.0]


def test_no_step_is_begun_that_would_not_fit(tmp_path: Path, clock: Clock) -> None:
    night = replace(NIGHT, budget_s=25.0)
    endless = conducted(tmp_path, night, stage(tmp_path, "fuzz", steps=0, endless=True))["fuzz"]
    assert (endless.status, endless.seconds, endless.codes) == ("done", 20.0, (0, 0))
    batches = conducted(tmp_path, night, stage(tmp_path, "faults", steps=5))["faults"]
    assert (batches.status, batches.seconds, batches.codes) == ("stopped", 20.0, (0, 0))
    assert "the budget was over; 2 steps" in batches.reason
    assert len(clock.limits) == 4


def test_without_a_budget_nothing_is_limited(tmp_path: Path, clock: Clock) -> None:
    found = conducted(tmp_path, replace(NIGHT, budget_s=None), stage(tmp_path, "faults", steps=3))
    assert (found["faults"].status, clock.limits) == ("done", [None] * 3)


def test_what_cannot_be_run_is_left_out_and_takes_no_share(tmp_path: Path, clock: Clock) -> None:
    night = replace(NIGHT, budget_s=100.0)
    bench = stage(tmp_path, "bench", steps=1, missing="there is no benchmark", weight=9)
    found = conducted(tmp_path, night, stage(tmp_path, "suites", steps=1), bench)
    assert found["suites"].share_s == 100.0
    assert (found["bench"].status, found["bench"].reason) == ("left out", "there is no benchmark")
    assert len(clock.limits) == 1


def test_a_stage_with_too_small_a_share_says_so(tmp_path: Path, clock: Clock) -> None:
    night = replace(NIGHT, budget_s=100.0)
    odds = stage(tmp_path, "odds", steps=1)
    odds = replace(odds, part=replace(odds.part, least_s=120.0))
    found = conducted(tmp_path, night, stage(tmp_path, "suites", steps=1), odds)
    assert found["suites"].share_s == 100.0
    assert found["odds"].reason == "it needs 2 min, which is more than its share of the 90 s left"
    assert len(clock.limits) == 1


def test_a_night_goes_on_after_the_steps_that_it_has(tmp_path: Path, clock: Clock) -> None:
    begun = StageRecord(name="fuzz", seconds=33.0, share_s=60.0, codes=(0, 1), step_s=15.0)
    night = (
        replace(NIGHT, budget_s=100.0).having(replace(begun, name="suites", open=False, status="done")).having(begun)
    )
    stages = [stage(tmp_path, name, steps=3) for name in ("suites", "fuzz", "faults")]
    found = conducted(tmp_path, night, *stages)
    assert found["fuzz"].codes == (0, 1, 0)
    assert found["fuzz"].seconds == 43.0
    assert found["fuzz"].verdict == "failed", "what an earlier step found stays found"
    assert found["faults"].share_s == 24.0
    assert clock.limits[0] == 27.0


@pytest.mark.parametrize(("code", "said"), [(9, "step 2 ended with 9: step fuzz 1"), (137, "step 2 ended with 137")])
def test_a_step_that_breaks_ends_its_stage_and_the_night_is_not_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("codes.json").write_text(json.dumps({"fuzz 1": code}), encoding="utf-8")
    conductor = Conductor(tmp_path, replace(NIGHT, budget_s=600.0), Listener())
    conductor.conduct([stage(tmp_path, name, steps=3) for name in ("fuzz", "faults")])
    fuzz, faults = conductor.record.stages
    assert (fuzz.status, fuzz.codes, fuzz.verdict) == ("stopped", (0,), "passed")
    assert fuzz.reason.startswith(said)
    assert conductor.record.validity.startswith(f"infrastructure: fuzz: {said}")
    assert (faults.status, faults.codes) == ("done", (0, 0, 0))
    assert conductor.record.exit_code == 3
