"""The ladder: its fit on rungs that were made up, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from v4model import cli, presets
from v4model.train.ladder import Fit, Rung, Task, climb, fit, fitted, save_rungs
from v4model.train.memory import Parts
from v4model.train.rungs import save_picture
from v4model.train.settings import TrainSettings

EXACT = 50e9


def rung(window: int, *, scale: float = 1.25, constant: float = 3e9, bump: float = 0.0) -> Rung:
    """What a card of that scale and constant would hold; streams of 400 kB a token."""
    parts = Parts(parameters=EXACT, streams=4e5 * window)
    return Rung(window=window, longest=100, parts=parts, measured=round(EXACT + scale * 4e5 * window + constant + bump))


RUNGS = [rung(window) for window in (4096, 16384, 65536, 131072)]


def test_the_fit_finds_what_made_the_rungs() -> None:
    found = fit(RUNGS)
    assert (found.scale, found.constant) == (pytest.approx(1.25), pytest.approx(3e9))
    for one in fitted(RUNGS):
        assert one.fitted == pytest.approx(one.measured)
        assert one.left_out == pytest.approx(one.measured)
        assert one.error(one.parts.total) < -0.01


def test_a_rung_does_not_vouch_for_itself() -> None:
    """One rung off by 20 GB: the fit of the others does not know of it."""
    odd = [*RUNGS[:3], rung(131072, bump=20e9)]
    last = fitted(odd)[-1]
    assert last.left_out == pytest.approx(RUNGS[3].measured)
    assert abs(last.error(last.left_out)) > abs(last.error(last.fitted)) > 0.01


def test_a_rung_without_memory_is_predicted_by_the_others() -> None:
    last = fitted([*RUNGS[:3], replace(RUNGS[3], measured=None)])[-1]
    assert last.fitted == pytest.approx(RUNGS[3].measured)
    assert last.error(last.fitted) is None


def test_two_rungs_are_no_fit() -> None:
    assert fitted(RUNGS[:2]) == RUNGS[:2]
    assert fit(RUNGS[:1]) == Fit(1.0, pytest.approx(3e9 + 0.25 * 4e5 * 4096))


def tasks(*windows: int) -> list[Task]:
    settings = TrainSettings(config=presets.tiny(), steps=2, recompute=True)
    return [Task(settings=settings, window=window, path=None, tokenizer="bytes") for window in windows]


def test_rungs_are_climbed_in_order(tmp_path: Path) -> None:
    done: list[int] = []
    found = climb(
        tasks(4096, 16384, 65536), measure=lambda task: rung(task.window), done=lambda each: done.append(each.window)
    )
    assert done == [4096, 16384, 65536] == [each.window for each in found]
    save_rungs(found, tmp_path / "new" / "ladder.json", about={"dtype": "bfloat16"})
    content = json.loads((tmp_path / "new" / "ladder.json").read_text(encoding="utf-8"))
    assert (content["schema"], content["dtype"], content["rungs"][0]["measured"]) == (1, "bfloat16", found[0].measured)
    save_picture(found, tmp_path / "ladder.png")
    assert (tmp_path / "ladder.png").stat().st_size > 10_000


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a CUDA device there is nothing to refuse")
def test_a_cpu_is_refused_from_the_fresh_process(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["ladder", "--preset", "tiny", "--windows", "64", "--tokenizer", "bytes", "--output", str(tmp_path)]
    assert cli.run_cli(words) == 2
    assert "got no CUDA device" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("windows", ["", "4096,", "0", "4k"])
def test_windows_that_are_no_numbers(windows: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["ladder", "--windows", windows]) == 2
    assert "--windows" in capsys.readouterr().err
