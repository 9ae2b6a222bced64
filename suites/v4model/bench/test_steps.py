"""The rows of a bench, on a CPU at tiny sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from v4model import cli, presets
from v4model.bench.steps import Plan, bench, natural_layout
from v4model.bench.timing import Times
from v4model.errors import ConfigError


def test_natural_layouts_fill_the_window_and_repeat() -> None:
    layout = natural_layout(5000, seed=3)
    assert layout.total == layout.real_tokens == 5000
    assert layout.num_samples > 3
    assert natural_layout(5000, seed=3).lengths == layout.lengths
    assert natural_layout(5000, seed=4).lengths != layout.lengths


def test_rows_of_a_plan() -> None:
    plan = Plan(config=presets.tiny(), windows=(32,), twins=("plain",), dtype=torch.float32, repeats=2)
    seen = []
    report = bench(plan, done=seen.append)
    assert [row.pack for row in report.rows] == ["single", "natural"]
    assert seen == list(report.rows)
    for row in report.rows:
        assert row.times is not None
        assert len(row.times.each_ms) == 2
        assert not row.fast
        assert row.share == pytest.approx(row.work.total / row.times.median_ms * 1e3 / report.ceiling)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="single, natural"):
        Plan(config=presets.tiny(), windows=(32,), packs=("ragged",))


def test_median_and_spread() -> None:
    times = Times((4.0, 1.0, 2.0))
    assert times.median_ms == 2.0
    assert times.spread == 1.5


def test_the_command_prints_a_table_and_writes_what_it_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "bench.json"
    command = "bench --preset tiny --windows 32,48 --packs single --repeats 1 --dtype float32 --device cpu --output"
    assert cli.run_cli([*command.split(), str(output)]) == 0
    printed = capsys.readouterr().out
    assert "fast (plain here)" in printed
    content = json.loads(output.read_text())
    assert content["device"] == "CPU"
    assert [(row["window"], row["twin"]) for row in content["rows"]] == [
        (32, "fast"), (32, "plain"), (48, "fast"), (48, "plain"),
    ]  # fmt: skip


@pytest.mark.parametrize("arguments", ["--packs ragged", "--windows x", "--dtype int8", "--device tpu"])
def test_bad_input_is_one_sentence(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["bench", "--preset", "tiny", *arguments.split()]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
