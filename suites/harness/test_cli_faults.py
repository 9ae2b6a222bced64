"""The command `harness faults`: what it prints, writes and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import cli
from harness.matrix import result
from harness.matrix.result import Row
from harness.matrix.run import Asking, items
from suites.harness import fakes

HEALTHY = Row(name="healthy", what=result.HEALTHY, title="as it is", verdict=result.QUIET, cells={})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names that a run was asked for; the run itself is left out."""
    found: list[str] = []

    def run(asking: Asking, *, jobs: int, done: Callable[[], None]) -> None:
        assert (asking.work.profile.name, jobs) == ("quick", 1)
        found.extend(dict.fromkeys(item.name for item in asking.items))
        for item in asking.items:
            if item.what == result.HEALTHY:
                asking.rows[item] = HEALTHY
                done()
        if found == ["healthy", "C2"]:
            raise KeyboardInterrupt

    monkeypatch.setattr(Asking, "run", run)
    monkeypatch.setattr("harness.corpus.builtin_corpus", fakes.corpus)
    return found


def _faults(*words: str) -> int:
    return cli.run_cli(["faults", "--profile", "quick", "--jobs", "1", *words])


def test_the_table_ends_with_the_figures(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert _faults("--only", "healthy", "--only", "C1") == 0
    assert asked == ["healthy", "C1"]
    assert capsys.readouterr().out.splitlines()[-1] == "0 of 0 faults caught, 0 alarms on the healthy model, in 0 s"


def test_ctrl_c_tells_what_is_known(asked: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    assert _faults("--only", "healthy", "--only", "C2", "--output", str(file)) == 130
    said = capsys.readouterr()
    assert "0 alarms on the healthy model" in said.out
    assert said.err == "harness: interrupted after 12 of 13 rows\n"
    assert json.loads(file.read_text(encoding="utf-8"))["rows"][0]["name"] == "healthy"
    assert asked == ["healthy", "C2"]


def test_json_on_the_terminal_and_in_a_file(
    asked: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "faults.json"
    assert _faults("--json", "--output", str(file)) == 0
    assert len(asked) > 60
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(file.read_text(encoding="utf-8"))
    assert (printed["schema_version"], printed["whole"]) == (1, False)


def test_a_wrong_name_or_place_is_one_sentence(
    asked: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert _faults("--only", "C0") == 2
    assert "unknown fault or rewrite 'C0'" in capsys.readouterr().err
    assert _faults("--output", str(tmp_path / "none" / "x.json")) == 2
    assert "a file in a folder that exists" in capsys.readouterr().err
    assert _faults("--output", str(tmp_path)) == 2
    assert "a file in a folder that exists" in capsys.readouterr().err
    assert asked == []


def test_those_of_ranks_come_first_and_the_healthy_model_at_every_place() -> None:
    every = items()
    assert len([item for item in every if item.what == result.HEALTHY]) == 12
    planted = [item.name for item in every if item.what != result.HEALTHY]
    assert planted.index("E3") < planted.index("A1")
    assert len(planted) == len(set(planted))
