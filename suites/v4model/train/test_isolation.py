"""The proof before the first step: a healthy model passes, one that leaks does not train; a NaN ends a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harness.case import Case
from harness.catalogue import find_fault, find_subject
from suites.harness import fakes
from v4model import ConfigError, V4Model, cli
from v4model.data import Recipe, load_packs, load_v4_tokenizer, open_source
from v4model.exchange import Ranks
from v4model.parallel.groups import Mesh
from v4model.parallel.in_process import InProcessWorld
from v4model.train.engines import engine_of
from v4model.train.feed import Feed
from v4model.train.isolation import IsolationError, prove_isolation
from v4model.train.loop import RunFiles, train
from v4model.train.record import read_records
from v4model.train.settings import TrainSettings

CASE = Case.from_token("all/7p3.15.21+60/s3")


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_a_healthy_model_passes_also_on_ranks(dtype: str) -> None:
    model = V4Model(CASE.v4config(), dtype=getattr(torch, dtype), seed=1)
    pack = CASE.pack(fakes.corpus())
    prove_isolation(model, pack, ranks=Ranks.one(), where="pack 0")
    InProcessWorld(Mesh(cp=2)).run(lambda member: prove_isolation(model, pack, ranks=member.ranks, where="pack 0"))


@pytest.mark.parametrize("fault", ["A1", "B1", "C1", "C3", "C8", "D1"])
def test_a_leak_is_refused_with_the_token_that_is_seen(fault: str) -> None:
    subject = find_subject("v4model")(CASE.v4config(), torch.float64, CASE.seed)
    model: V4Model = subject.model  # type: ignore[attr-defined]  # the subject of this repository
    planted = find_fault(fault).apply(subject)
    with planted, pytest.raises(IsolationError, match=r"got a gradient from samples of (even|odd) number at sample \d"):
        prove_isolation(model, CASE.pack(fakes.corpus()), ranks=Ranks.one(), where="pack 0")


def test_a_leaking_model_does_not_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def leaks(*_: object, where: str, **__: object) -> None:
        raise IsolationError(got="a gradient", expected="a gradient of exactly 0", where=where)

    monkeypatch.setattr("v4model.train.loop.prove_isolation", leaks)
    assert cli.run_cli(["train", "--steps", "1", "--window", "96", "--output", str(tmp_path)]) == 1
    assert "where: `v4model data inspect --window 96" in capsys.readouterr().err
    assert not (tmp_path / "log.jsonl").exists()


def test_a_proof_that_cannot_be_made_is_not_left_out_silently(tmp_path: Path) -> None:
    settings = TrainSettings(config=CASE.v4config(), steps=1)
    engine = engine_of(settings)
    engine.mesh = Mesh(pp=2)
    recipe = Recipe(window=96, too_long="truncate", unsupervised="drop")
    feed = Feed(load_packs(open_source(None), tokenizer=load_v4_tokenizer(), recipe=recipe), settings.config, 1)
    files = RunFiles(log=tmp_path / "log.jsonl", checkpoints=None, save_every=None, about={})
    with pytest.raises(ConfigError, match="got preflight with 2 pipeline stages; expected --no-preflight"):
        train(engine, feed, files)


def test_a_loss_that_is_no_number_ends_the_run_before_its_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--steps", "3", "--window", "96", "--lr", "1e30", "--clip", "0", "--no-preflight"]
    assert cli.run_cli([*words, "--output", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "expected finite numbers; where: `v4model data inspect" in said
    records = read_records(tmp_path / "log.jsonl")
    assert [record.is_finite for record in records] == [True, False]
    assert list((tmp_path / "checkpoints").iterdir()) == []
