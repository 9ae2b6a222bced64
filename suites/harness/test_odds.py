"""Odds: counted on drawn layouts, with the interval's lower end, and what a run makes of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness import catalogue, cli
from harness.corpus import Corpus
from harness.engine import PROFILES
from harness.engine.odds import Odds, odds
from harness.engine.unit import Work
from suites.harness import fakes


def of(caught: int, *, cases: int = 300, layouts: int = 100) -> Odds:
    return Odds(fault="A1", property_name="p", cases=cases, caught=caught, layouts=layouts)


def test_the_lower_end_by_hand() -> None:
    # Every one of n caught: the lower end x has x^n = 0.05.
    assert of(300).at_least == pytest.approx(0.05 ** (1 / 300))
    assert of(0).at_least == 0.0
    assert 0.07 < of(30).at_least < of(30).a_layout == 0.1
    assert of(30).a_run == pytest.approx(1 - (1 - of(30).at_least) ** 100)
    assert of(0, cases=0).a_run == 0.0


def work() -> Work:
    return Work(subject=fakes.named("healthy"), profile=PROFILES["quick"], corpus=fakes.corpus(), seed=None, fault=None)


def test_odds_count_the_layouts_that_catch_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "load_faults", lambda: (replace(fakes.LEAK, expected=fakes.named("ALONE")),))
    (found,) = odds(["Z1"], work(), cases=20, jobs=1)
    # Two kinds of ten cases each; the first of each kind is one sample, which has no neighbour.
    assert (found.cases, found.caught, found.trouble) == (20, 18, "")
    assert found.layouts == 2 * PROFILES["quick"].cases_per_kind


def test_the_table_names_what_a_run_may_miss(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def measured(names: list[str], _: Work, *, cases: int, jobs: int, done: object) -> list[Odds]:
        assert (cases, jobs) == (40, 1)
        found = [of(300), of(2)]
        for each in found:
            done(each)  # type: ignore[operator]
        return found[: len(names)]

    def corpus(_: object) -> Corpus:
        return fakes.corpus()

    monkeypatch.setattr("harness.engine.odds.odds", measured)
    monkeypatch.setattr("harness.corpus.load_corpus", corpus)
    file = tmp_path / "odds.json"
    words = ["odds", "--only", "A1", "--only", "C1", "--cases", "40", "--jobs", "1", "--output", str(file)]
    assert cli.run_cli(words) == 1
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[1].split() == ["A1", "p", "300/300", "1.000", "0.990", "100", "0.99999"]
    assert lines[-1] == "1 of 2 faults are caught by a ci run at 99% or more; below: A1"
    assert json.loads(file.read_text(encoding="utf-8"))["odds"][1]["caught"] == 2


def test_an_unknown_fault_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["odds", "--only", "nothing"]) == 2
    assert "unknown fault" in capsys.readouterr().err
