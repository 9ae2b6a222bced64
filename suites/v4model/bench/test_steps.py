"""The rows of a bench, on a CPU at tiny sizes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from suites.v4model.support import random_pack
from v4model import V4Model, cli, presets
from v4model.bench.reference import reference_step
from v4model.bench.steps import Plan, bench, natural_layout
from v4model.bench.timing import Times
from v4model.errors import ConfigError
from v4model.pack import PackLayout


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


def test_transformers_runs_on_the_same_weights_and_the_same_sample() -> None:
    config = replace(presets.tiny(), num_nextn_predict_layers=0, compress_ratios=(0, 4, 16, 4), index_n_heads=32)
    model = V4Model(config, dtype=torch.float32)
    pack = random_pack(PackLayout.single(40))
    ours = model(pack)
    ours.loss.backward()
    theirs = reference_step(model, pack)()
    # As shipped it rounds on its way, 20 times a layer at most: see `suites.v4model.test_against_transformers`.
    assert float(theirs.detach()) == pytest.approx(
        float(ours.main_loss.detach()), rel=20 * len(config.compress_ratios) * 2.0**-24
    )


def test_transformers_runs_in_bfloat16_too() -> None:
    # Routers and hyper-connections are float32 in our model, and not all of them in theirs.
    config = replace(presets.tiny(), num_nextn_predict_layers=0, compress_ratios=(0, 4, 16, 4))
    model = V4Model(config, dtype=torch.bfloat16)
    assert torch.isfinite(reference_step(model, random_pack(PackLayout.single(40)))())


def test_transformers_is_asked_of_one_sample_only_and_has_no_mtp() -> None:
    config = replace(presets.tiny(), num_nextn_predict_layers=0, compress_ratios=(0, 4, 16, 4), index_n_heads=32)
    plan = Plan(config=config, windows=(600,), twins=("plain", "transformers"), dtype=torch.float32, repeats=1, seed=5)
    rows = [(row.pack, row.twin) for row in bench(plan).rows]
    assert rows == [("single", "plain"), ("single", "transformers"), ("natural", "plain")]
    with pytest.raises(ConfigError, match="MTP depths; expected num_nextn_predict_layers 0"):
        Plan(config=presets.tiny(), windows=(32,), twins=("transformers",))
