"""From a name to a factory: installed subjects, and one clear sentence for whatever is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import cli
from harness.errors import UsageError
from harness.subjects.resolve import known_subjects, subject_factory
from suites.harness.subjects import toy

PLACE = toy.__name__
LEAVES = "suites.harness.subjects.leaves"


def one_argument(config: object) -> object:
    """No factory."""
    return config


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that brings subjects: one that works, one that cannot be imported, one of a name that is taken."""
    info = tmp_path / "someones_trainer-2.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: someones-trainer\nVersion: 2.5\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        f"[harness.subjects]\nmine = {PLACE}:Toy\nbroken = no_such_package:Model\nv4model = {PLACE}:Leaking\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
def test_an_entry_point_is_a_subject() -> None:
    assert subject_factory("mine") is toy.Toy
    assert known_subjects()["mine"].source == "someones-trainer 2.5"


@pytest.mark.usefixtures("installed")
def test_an_entry_point_does_not_take_an_own_name() -> None:
    assert subject_factory("v4model") is not toy.Leaking
    assert known_subjects()["v4model"].source == "this package"


@pytest.mark.usefixtures("installed")
def test_an_entry_point_that_cannot_be_imported_is_told() -> None:
    with pytest.raises(UsageError, match="ModuleNotFoundError: No module named 'no_such_package'"):
        subject_factory("broken")


@pytest.mark.usefixtures("installed")
def test_the_list_shows_installed_subjects_with_their_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["list"]) == 0
    assert f"mine  {PLACE}:Toy (someones-trainer 2.5)" in capsys.readouterr().out


@pytest.mark.usefixtures("installed")
def test_an_installed_subject_is_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    token = "all,balance_coef=0.0,index_kl_coef=0.0/5.9/s1"
    assert cli.run_cli(["replay", token, "--subject", "mine", "--only", "packed_equals_alone"]) == 0
    assert f"{token} on mine" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing", "unknown subject 'nothing'; expected one of v4model"),
        ("v4modle", "unknown subject 'v4modle'; expected v4model, perhaps"),
        ("no.such.module:build", "ModuleNotFoundError"),
        (f"{LEAVES}:build", "got SystemExit: 0; expected a module that can be imported"),
        (f"{PLACE}:absent", "no 'absent' in"),
        (f"{PLACE}:WIDTH", "got int; expected a callable (config, dtype, seed) -> Subject"),
        (f"{__name__}:one_argument", "a factory (config: 'object') -> 'object': too many positional arguments"),
        (":build", "got ':build'; expected module:attribute"),
        ("worker:python", "expected worker:PYTHON:MODULE:FACTORY"),
        ("worker:no-such-python:module:factory", "no program no-such-python; expected a Python interpreter"),
        ("absent.toml", "No such file or directory; expected a readable file"),
    ],
)
def test_what_is_wrong_is_one_sentence(name: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["run"], ["replay", "all/5/s1"], ["explain", "all/5/s1"], ["check-subject"]):
        option = [] if command == ["check-subject"] else ["--subject"]
        assert cli.run_cli([*command, *option, name]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert words in line


@pytest.mark.parametrize(
    "command", [["run", "--fault", "A1"], ["replay", "all/5.9/s1", "--fault", "A1"], ["faults", "--only", "A1"]]
)
def test_a_fault_that_would_not_be_planted_is_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli([*command, "--subject", f"{PLACE}:Toy"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "on toy; expected a subject whose `model` is a V4Model; where: subject" in line
