"""How stages end, what is read of them, and that a table says what went wrong."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from v4model import DataError
from v4model.data import PackedData, Recipe, load_packs, load_tokenizer, open_source
from v4model.parallel.volume import context_bytes
from v4model.presets import tiny
from v4model.recipes.one_host.picture import save_picture
from v4model.recipes.one_host.read import Run, read_run
from v4model.recipes.one_host.run import TIMED_OUT, Ended, read_stages, run_stage
from v4model.recipes.one_host.stages import Stage, Training
from v4model.recipes.one_host.table import page, table
from v4model.train.record import RecordLog, StepRecord
from v4model.train.settings import DTYPES

WINDOW, STEPS = 160, 3


def training(gpus: int = 2, **changes: Any) -> Training:
    found = Training(
        preset="tiny", changes={}, window=WINDOW, steps=STEPS, packs=1, cp=gpus, ep=gpus, gpus=gpus, dtype="float32",
        engine="torch", offload=0.0, device="cpu", data=None, tokenizer="bytes",
    )  # fmt: skip
    return replace(found, **changes)


@cache
def packs(window: int, ranks: int) -> PackedData:
    recipe = Recipe(window=window, ranks=ranks, too_long="truncate", unsupervised="drop")
    return load_packs(open_source(None), tokenizer=load_tokenizer("bytes"), recipe=recipe)


def expected_bytes(run: Training, pack: int) -> int:
    data = packs(run.window, run.cp)
    return context_bytes(
        tiny(), [data.pack(pack).layout], ranks=run.cp, stages=1, dtype=DTYPES[run.dtype], recompute=run.recompute
    )


def record(step: int, run: Training, **changes: Any) -> StepRecord:
    found = StepRecord(
        step=step, loss=9.0 - step, main=6.5 - step, mtp=(6.7, 6.8), balance=0.1, kl=0.1, grad_norm=2.0,
        learning_rate=1e-4, real_tokens=150, supervised_tokens=100, packs=(step,), without_hca=0,
        seconds=4.0 / run.gpus, peak_bytes=int(80e9 / run.gpus), cp_bytes=expected_bytes(run, step), ep_bytes=1000,
    )  # fmt: skip
    return replace(found, **changes)


def left_by(folder: Path, name: str, run: Training, records: list[StepRecord], *, kind: str = "scaling") -> Ended:
    """A stage's folder as a run leaves it."""
    stage = Stage(name=name, kind=kind, command=["train"], training=run)
    ended = Ended(stage=stage, code=0, seconds=9.0, last="the end")
    (folder / name).mkdir(parents=True)
    (folder / name / "stage.json").write_text(json.dumps(asdict(ended)), encoding="utf-8")
    log = RecordLog(folder / name / "log.jsonl", first_step=0)
    for each in records:
        log.append(each)
    log.close()
    return ended


def read(folder: Path, *names: str) -> list[Run]:
    return [read_run(ended, folder) for ended in read_stages(folder, names)]


def test_a_healthy_run_has_no_problem_and_the_figures_of_its_own_log(tmp_path: Path) -> None:
    for gpus in (1, 2):
        run = training(gpus)
        left_by(tmp_path, f"scaling-{gpus}", run, [record(step, run) for step in range(STEPS)])
    runs = read(tmp_path, "scaling-1", "scaling-2", "never ran")
    assert [run.problems for run in runs] == [(), ()]
    assert [run.step_seconds for run in runs] == [4.0, 2.0]
    assert [run.peak_bytes for run in runs] == [80e9, 40e9]
    assert (runs[0].cp_bytes, runs[0].cp_expected) == (0, 0)
    assert runs[1].cp_bytes == runs[1].cp_expected > 0
    text, wrong = page(about="here", ended=[run.ended for run in runs], runs=runs, folder=tmp_path)
    assert wrong == ()
    (two,) = (line for line in text.splitlines() if line.startswith("| scaling-2"))
    cells = [cell.strip() for cell in two.strip("|").split("|")]
    assert cells[:5] == ["scaling-2", "2", "8", "160 x 1", "3 of 3"]
    assert cells[5:11] == ["9.0000 to 7.0000", "2.0000 to 2.0000", "40.0", "2.00", "75", "2.00x"]
    assert cells[11] == "0.0e+00, 0.0e+00"
    assert cells[-1] == "well"
    save_picture(runs, tmp_path / "scaling.png", title="here")
    assert (tmp_path / "scaling.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda r: r[:2], "2 of 3 steps"),
        (lambda r: [*r[:2], replace(r[2], loss=float("nan"))], "step 2 is no number"),
        (lambda r: [*r[:2], replace(r[2], cp_bytes=r[2].cp_bytes + 8)], "bytes over context groups, not"),
        (lambda r: [*r[:2], replace(r[2], packs=(0, 2))], "bytes over context groups, not"),  # those of other packs
        (lambda _: [], "0 of 3 steps"),
    ],
    ids="steps nan bytes pack none".split(),
)
def test_what_is_wrong_with_a_run_is_in_the_table_and_gates(tmp_path: Path, damage: Any, said: str) -> None:
    run = training()
    left_by(tmp_path, "scaling-2", run, damage([record(step, run) for step in range(STEPS)]))
    runs = read(tmp_path, "scaling-2")
    text, wrong = page(about="here", ended=[run.ended for run in runs], runs=runs, folder=tmp_path)
    assert any(said in problem for problem in wrong)
    assert said in text
    assert "| well |" not in text


def test_a_run_that_ended_badly_gates_although_its_records_are_whole(tmp_path: Path) -> None:
    run = training()
    ended = left_by(tmp_path, "scaling-2", run, [record(step, run) for step in range(STEPS)])
    found = read_run(replace(ended, code=1), tmp_path)
    assert found.problems == ("ended with 1 after 9 s: the end",)


def test_a_folder_of_another_stage_is_refused(tmp_path: Path) -> None:
    run = training()
    left_by(tmp_path, "scaling-2", run, [record(0, run)])
    (tmp_path / "scaling-2").rename(tmp_path / "scaling-4")
    with pytest.raises(DataError, match="got stage scaling-2; expected scaling-4"):
        read_stages(tmp_path, ["scaling-4"])


def test_curves_stand_side_by_side(tmp_path: Path) -> None:
    long, short = training(2), training(2, window=80, packs=2, cp=1)
    for name, run in (("deep-160", long), ("deep-80", short)):
        steps = range(STEPS if run is long else 2)
        left_by(tmp_path, name, run, [record(step, long, main=run.window + step) for step in steps], kind="curve")
    runs = read(tmp_path, "deep-160", "deep-80")
    text, _ = page(about="here", ended=[run.ended for run in runs], runs=runs, folder=tmp_path)
    assert "| step | main, 160 x 1 | main, 80 x 2 | MTP 1, 160 x 1 | MTP 1, 80 x 2 |" in text
    assert "| 1 | 161.00 | 81.00 | 6.70 | 6.70 | 6.80 | 6.80 |" in text
    assert "| 2 | 162.00 | - | 6.70 | - | 6.80 | - |" in text


def _ended(folder: Path, kind: str, content: object, *, code: int = 0) -> Ended:
    (folder / kind).mkdir()
    name = {"ranks": "gpus.json", "properties": "report.json"}[kind]
    (folder / kind / name).write_text(json.dumps(content), encoding="utf-8")
    return Ended(stage=Stage(name=kind, kind=kind, command=["it"]), code=code, seconds=1.0, last="told")


def test_rows_outside_their_bounds_and_properties_that_do_not_hold_gate(tmp_path: Path) -> None:
    row = {
        "mesh": "cp=2", "dtype": "float32", "nll_one": 1e-7, "nll_several": 1e-7, "gradient_one": 1e-6,
        "gradient_several": 3e-6, "loss_difference": 0.0, "weight_error": 0.2, "norm_error": 0.0, "step_seconds": 1.0,
        "holds": False,
    }  # fmt: skip
    unit = {
        "property": "cp_matches_one_rank", "kind": "all@2p", "outcome": "UNDECIDED", "layouts": 3, "error": None,
        "bound": None, "reasons": {"got 0 GPUs": 3},
    }  # fmt: skip
    failed = [{"mesh": "pp=2", "dtype": "bfloat16", "error": "rank 1: died"}]
    ended = [
        _ended(tmp_path, "ranks", {"rows": [row], "unfinished": failed}, code=1),
        _ended(tmp_path, "properties", {"units": [unit], "headline": "UNDECIDED"}, code=3),
    ]
    text, wrong = page(about="here", ended=ended, runs=[], folder=tmp_path)
    assert "ranks: float32 cp=2 is outside its bounds" in wrong
    assert "ranks: bfloat16 pp=2: rank 1: died" in wrong
    assert "properties: cp_matches_one_rank on all@2p: UNDECIDED got 0 GPUs" in wrong
    assert "properties: ended with 3 after 1 s: told" in wrong
    assert text.count("| NO |") == 2


def test_a_stage_without_its_table_gates(tmp_path: Path) -> None:
    stage = Stage(name="ranks", kind="ranks", command=["it"])
    _, wrong = page(about="here", ended=[Ended(stage=stage, code=0, seconds=1.0)], runs=[], folder=tmp_path)
    assert any("gpus.json cannot be read" in problem for problem in wrong)


def test_how_a_stage_ends_is_kept_whatever_it_is(tmp_path: Path) -> None:
    def stage(name: str, code: str) -> Stage:
        return Stage(name=name, kind="ranks", command=[sys.executable, "-c", code])

    assert run_stage(stage("well", "print('fine')"), tmp_path, timeout_s=60).code == 0
    failed = run_stage(stage("bad", "print('no room'); raise SystemExit(7)"), tmp_path, timeout_s=60)
    assert (failed.code, failed.last) == (7, "no room")
    assert [ended.code for ended in read_stages(tmp_path, ["well", "bad"])] == [0, 7]


def test_a_stage_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    child = f"import os, pathlib, time; pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); time.sleep(600)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    command = [sys.executable, "-c", parent]
    ended = run_stage(Stage(name="slow", kind="ranks", command=command), tmp_path, timeout_s=5.0)
    assert ended.code == TIMED_OUT
    limit = time.monotonic() + 20
    while Path(f"/proc/{pid.read_text()}/cmdline").exists() and time.monotonic() < limit:
        if not Path(f"/proc/{pid.read_text()}/cmdline").read_bytes():
            break  # ended, and nobody has asked for its code yet
    else:
        assert time.monotonic() < limit, "the child is still there"


def test_a_table_keeps_its_columns() -> None:
    assert table(["a", "b"], [["x|y", 1]]) == ["| a | b |", "| --- | --- |", "| x\\|y | 1 |"]
