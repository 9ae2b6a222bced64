"""What a step does beside its gradients: rates, router biases, packs without windows, what ends a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from suites.v4model.train.test_train_command import lines, run
from v4model import Pack, PackLayout, presets
from v4model.pack.counts import counts_of
from v4model.train.engines import engine_of
from v4model.train.feed import Feed, StepPacks
from v4model.train.settings import TrainSettings
from v4model.train.torch_engine import TorchEngine

CONFIG = presets.tiny()


def test_the_learning_rate_by_value() -> None:
    settings = TrainSettings(
        config=CONFIG, steps=20, learning_rate=1.0, warmup_steps=4, decay_steps=14, least_share=0.1
    )
    found = [settings.learning_rate_at(step) for step in (0, 1, 3, 4, 9, 14, 19)]
    # A cosine over the 10 steps behind the warm-up: half way at step 9, a tenth from step 14 on.
    assert found == pytest.approx([0.25, 0.5, 1.0, 1.0, 0.55, 0.1, 0.1])


def test_router_biases_move_towards_the_mean_count() -> None:
    engine = engine_of(TrainSettings(config=CONFIG, steps=1))
    tokens = torch.randint(0, CONFIG.vocab_size, (64,), generator=torch.Generator().manual_seed(3))
    pack = Pack(tokens, layout=PackLayout.from_lengths([40, 24]))
    counts = counts_of([pack], depths=CONFIG.num_nextn_predict_layers)
    step = engine.gradients(StepPacks([pack], [0], counts, 64, 0))
    selections = engine.model(pack).router_counts
    engine.update(0, step)
    assert selections
    for name, chosen in selections.items():
        gate = engine.model.get_submodule(f"{name}.mlp.gate")
        expected = CONFIG.router_bias_rate * torch.sign(chosen.double().mean() - chosen.double())
        torch.testing.assert_close(gate.e_score_correction_bias.double(), expected)


def test_a_pack_without_a_window_of_the_largest_ratio_is_counted() -> None:
    ratio = max(CONFIG.ratios)
    packs = [
        Pack(torch.zeros(2 * ratio, dtype=torch.long), layout=PackLayout.from_lengths(lengths))
        for lengths in ([ratio - 1, ratio + 1], [ratio - 1, ratio - 1, 2], [2 * ratio])
    ]

    class Packs:
        def order(self, *, start: int) -> list[int]:
            return [0, 1, 2][start:]

        def pack(self, number: int) -> Pack:
            return packs[number]

    assert Feed(Packs(), CONFIG, 3).step(0).without_hca == 1  # type: ignore[arg-type]


def test_a_loss_that_is_no_number_ends_the_run_and_changes_no_weight(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(tmp_path, "--steps", "1") == 0
    updates = []
    healthy = TorchEngine.gradients
    monkeypatch.setattr(
        TorchEngine,
        "gradients",
        lambda self, packs: dataclasses.replace(healthy(self, packs), loss=float("nan")),
    )
    monkeypatch.setattr(TorchEngine, "update", lambda *_: updates.append(1))
    assert run(tmp_path, "--steps", "3", "--resume") == 1
    assert updates == []
    assert "got loss nan" in capsys.readouterr().err
    assert [record["loss"] for record in lines(tmp_path)][-1] is None
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]


def test_a_run_does_not_begin_among_the_checkpoints_of_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--steps", "2") == 0
    before = lines(tmp_path)
    assert run(tmp_path, "--steps", "1") == 2
    assert "got step-00000002 of an earlier run; expected an --output without checkpoints" in capsys.readouterr().err
    assert lines(tmp_path) == before


def test_a_folder_that_cannot_be_is_told_before_the_first_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checkpoints").write_text("a file", encoding="utf-8")
    assert run(tmp_path, "--steps", "1") == 2
    assert "expected a folder for checkpoints" in capsys.readouterr().err
    assert not (tmp_path / "log.jsonl").exists()


@pytest.mark.parametrize("damage", ["cut", "gone", "no state", "list"])
def test_a_damaged_checkpoint_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str) -> None:
    assert run(tmp_path, "--steps", "1") == 0
    checkpoint = tmp_path / "checkpoints" / "step-00000001"
    (data,) = (checkpoint / "state").glob("*.distcp")
    if damage == "cut":
        data.write_bytes(data.read_bytes()[:2000])
    elif damage == "gone":
        data.unlink()
    elif damage == "no state":
        (checkpoint / "state").rename(tmp_path / "elsewhere")
    else:
        (checkpoint / "about.json").write_text("[]", encoding="utf-8")
    assert run(tmp_path, "--steps", "2", "--resume") == 2
    error = capsys.readouterr().err
    assert "step-00000001" in error
    assert "Traceback" not in error


@pytest.mark.parametrize("device", ["cuda:0", "meta", "foo"])
def test_a_device_that_training_does_not_know(tmp_path: Path, capsys: pytest.CaptureFixture[str], device: str) -> None:
    assert run(tmp_path, "--device", device) == 2
    assert f"got --device {device}; expected cpu, or cuda" in capsys.readouterr().err
