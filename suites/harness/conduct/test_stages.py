"""What the stages of a night run."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.conduct.stages import derived_seed, stages
from harness.conduct.turns import Stage, Step
from suites.repo import tree

ROWS = ["healthy", *(f"A{n}" for n in range(1, 11))]


def of(folder: Path, *, seed: int = 5, is_whole: bool = False) -> dict[str, Stage]:
    return {
        stage.name: stage
        for stage in stages(folder, seed=seed, jobs=2, is_whole=is_whole, rows=lambda: ROWS, faults=lambda: ROWS[1:])
    }


def steps(stage: Stage, most: int = 100) -> list[Step]:
    found: list[Step] = []
    while len(found) < most and (step := stage.step(len(found))) is not None:
        found.append(step)
    return found


def after(step: Step, option: str) -> list[str]:
    return [value for word, value in zip(step.command, step.command[1:], strict=False) if word == option]


def test_the_suites_come_first_and_what_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree.ROOT)
    found = of(tmp_path)
    assert list(found) == ["suites", "fuzz", "ranks", "faults", "odds", "peers", "bench"]
    assert {name: stage.missing for name, stage in found.items() if stage.missing} == {
        "bench": "there is no benchmark",
    }
    (suites,) = steps(found["suites"])
    assert suites.command[1:4] == ("-m", "pytest", "suites")
    assert suites.command[-1] == "--results-continue"
    assert suites.leaves == ("suites/results.jsonl",)
    monkeypatch.chdir(tmp_path)
    assert of(tmp_path)["suites"].missing == "no folder suites here"


def test_the_search_goes_on_with_other_seeds_until_its_time_is_over(tmp_path: Path) -> None:
    found = of(tmp_path)
    drawn = []
    for name in ("fuzz", "ranks"):
        runs = steps(found[name], most=50)
        assert found[name].endless
        assert len({run.leaves for run in runs}) == 50
        assert runs[1].leaves == (f"{name}/0002/report.json",)
        assert after(runs[1], "--output") == [str(tmp_path / name / "0002")]
        assert {word for run in runs for word in after(run, "--profile")} == {"quick"}
        drawn += [int(word) for run in runs for word in after(run, "--seed")]
    assert len(set(drawn)) == 100
    assert drawn[0] == derived_seed(5, "fuzz", 0)
    assert max(drawn) < 1 << 32
    assert after(steps(found["ranks"], most=1)[0], "--cp") == ["1,2,4"]


def test_without_a_budget_the_search_is_long_and_ends(tmp_path: Path) -> None:
    found = of(tmp_path, is_whole=True)
    for name in ("fuzz", "ranks"):
        (run,) = steps(found[name])
        assert after(run, "--profile") == ["nightly"]
        assert not found[name].endless


def test_batches_hold_every_row_once_in_an_order_of_the_seed(tmp_path: Path) -> None:
    asked = [
        [name for step in steps(of(tmp_path, seed=s)["faults"]) for name in after(step, "--only")] for s in (1, 1, 2)
    ]
    assert sorted(asked[0]) == sorted(ROWS)
    assert asked[0] == asked[1]
    assert asked[0] != asked[2]
    first = steps(of(tmp_path)["faults"])[0]
    assert after(first, "--output") == [str(tmp_path / "faults" / "0001.json")]
    assert len(after(first, "--only")) == 4
    assert sorted(name for step in steps(of(tmp_path)["odds"]) for name in after(step, "--only")) == sorted(ROWS[1:])
