"""`v4model train`: it learns, goes on where it ended to the bit, and gives on ranks what one rank gives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from v4model import V4Model, cli, hf, presets
from v4model.changes import with_changes
from v4model.train.checkpoint import newest_checkpoint
from v4model.train.record import read_records
from v4model.train.torch_engine import TorchEngine

SMALL = ["--window", "160", "--set", "num_hidden_layers=2", "--set", "compress_ratios=4:16:4:0", "--lr", "0.01"]


def run(folder: Path, *words: str) -> int:
    return cli.run_cli(["train", "--output", str(folder), *SMALL, *words])


def lines(folder: Path) -> list[dict[str, Any]]:
    """The records as they are on the disk, without the time that each step took."""
    found = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in record.items() if name != "seconds"} for record in found]


def test_the_loss_falls_on_real_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--steps", "30", "--packs", "2") == 0
    records = read_records(tmp_path / "log.jsonl")
    assert len(records) == 30
    first, last = (sum(record.main for record in part) / 5 for part in (records[:5], records[-5:]))
    print(f"main loss {first:.3f} to {last:.3f}")
    # ln 512 = 6.24 is what knows nothing.
    assert last < first - 0.5
    assert all(record.mtp[1] > 0 and record.real_tokens > record.supervised_tokens > 0 for record in records)
    assert "ids folded into 512" in capsys.readouterr().out
    assert (tmp_path / "curve.png").stat().st_size > 10_000


def test_a_run_in_two_parts_is_the_run_in_one_to_the_bit(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(whole, "--steps", "6") == 0
    assert run(parts, "--steps", "3") == 0
    assert run(parts, "--steps", "6", "--resume") == 0
    assert lines(parts) == lines(whole)
    ends = [newest_checkpoint(folder / "checkpoints") for folder in (whole, parts)]
    assert [end.name for end in ends if end is not None] == ["step-00000006"] * 2
    data = [next(end.glob("state/*.distcp")).read_bytes() for end in ends if end is not None]
    assert data[0] == data[1]


def test_another_run_is_not_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--steps", "1") == 0
    assert run(tmp_path, "--steps", "2", "--resume", "--set", "index_topk=2") == 2
    assert "as the run began" in capsys.readouterr().err
    assert len(lines(tmp_path)) == 1


def _torchrun(folder: Path, *words: str, ranks: int) -> None:
    """As on one node: torchrun finds a free port by itself."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [*launcher, "-m", "v4model", "train", "--output", str(folder), *SMALL, *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("split", [("--cp", "2"), ("--ep", "2", "--packs", "2"), ("--pp", "2", "--no-preflight")])
def test_two_ranks_give_the_curve_of_one(tmp_path: Path, split: Sequence[str]) -> None:
    common = ["--steps", "4", "--dtype", "float64"]
    alone = [word for word in split if word in ("--packs", "2") and "--packs" in split]
    assert run(tmp_path / "one", *common, *(["--packs", "2"] if alone else [])) == 0
    _torchrun(tmp_path / "two", *common, *split, ranks=2)
    one, two = (read_records(tmp_path / name / "log.jsonl") for name in ("one", "two"))
    largest = 0.0
    for a, b in zip(one, two, strict=True):
        for name in ("loss", "main", "balance", "kl", "grad_norm"):
            largest = max(largest, abs(getattr(a, name) - getattr(b, name)) / abs(getattr(a, name)))
        assert (a.real_tokens, a.supervised_tokens, a.packs) == (b.real_tokens, b.supervised_tokens, b.packs)
    # Sums in another order, grown by the steps' own sensitivity: 1e-15 a step was seen to become 1e-13.
    print(f"largest relative difference over 4 steps: {largest:.1e}")
    assert largest < 1e-9


def test_ctrl_c_saves_and_the_run_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "v4model", "train", "--output", str(tmp_path), *SMALL, "--steps", "100000"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as run_:
        log = tmp_path / "log.jsonl"
        while run_.poll() is None and not (log.exists() and log.read_text(encoding="utf-8").count("\n") >= 2):
            with suppress(subprocess.TimeoutExpired):
                run_.wait(0.05)  # not at once again: the run needs the processor
        run_.send_signal(signal.SIGINT)
        _, said = run_.communicate(timeout=120)
    assert run_.returncode == 130
    assert "--resume` goes on" in said
    done = len(lines(tmp_path))
    assert run(tmp_path, "--steps", str(done + 1), "--resume") == 0
    assert [record["step"] for record in lines(tmp_path)] == list(range(done + 1))


def test_training_begins_from_given_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = with_changes(presets.tiny(), {"num_hidden_layers": "2", "compress_ratios": "4:16:4:0"}, where="test")
    for seed in (3, 8):
        hf.save(V4Model(small, seed=seed), tmp_path / f"weights {seed}")
    assert run(tmp_path / "seeded", "--steps", "2", "--seed", "8") == 0
    for seed, is_same in ((8, True), (3, False)):
        given = ["--weights", str(tmp_path / f"weights {seed}")]
        assert run(tmp_path / f"run {seed}", "--steps", "2", "--seed", "8", *given) == 0
        assert (lines(tmp_path / f"run {seed}") == lines(tmp_path / "seeded")) == is_same
    assert run(tmp_path / "none", "--steps", "1", "--weights", str(tmp_path / "nowhere")) == 2
    assert "nowhere" in capsys.readouterr().err


def test_megatron_is_refused_off_cuda(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--engine", "megatron") == 2
    assert "got --device cpu; expected --device cuda; where: --engine megatron" in capsys.readouterr().err
    assert run(tmp_path, "--offload", "0.5") == 2
    assert "got offload 0.5 on torch; expected --engine megatron, or no offload" in capsys.readouterr().err


def test_a_full_card_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total of 139 GiB.")

    monkeypatch.setattr(TorchEngine, "_forward_backward", full)
    assert run(tmp_path, "--steps", "1") == 1
    error = capsys.readouterr().err
    assert "got a step that does not fit on cpu (CUDA out of memory); expected less: --recompute" in error
    assert "Traceback" not in error
