"""Recipes: they cannot drift apart, say what is off, refuse what cannot run, and train."""

from __future__ import annotations

import math
import os
import tomllib
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from suites.v4model.recipes.scripts import BASE, FOLDER, Done, fake_python, run
from v4model.recipes.probe import train_options
from v4model.train.record import read_records

SCRIPTS = sorted(path.name for path in FOLDER.glob("run_*.sh"))
DIFFERENCES = {
    recipe: (other, set(keys))
    for recipe, other, *keys in (
        line.split()
        for line in (FOLDER / "differences.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
}
HEALTHY = {f"option.{name}": "yes" for name in train_options()} | {
    "launcher.torchrun": "yes",
    "model.config": "yes",
    "tokenizer.v4": "yes",
    "gpu.count": "yes",
    "gpu.nccl": "yes",
    "gpu.bfloat16": "yes",
}


@cache
def resolved(recipe: str) -> Done:
    done = run(recipe, "--dry-run")
    assert done.code == 0, done.err
    return done


def test_every_recipe_says_whom_it_follows() -> None:
    assert {BASE, *DIFFERENCES} == set(SCRIPTS)


@pytest.mark.parametrize("recipe", DIFFERENCES)
def test_a_recipe_differs_in_the_declared_keys_and_no_others(recipe: str) -> None:
    other, declared = DIFFERENCES[recipe]
    own, its = resolved(recipe), resolved(other)
    assert own.settings.keys() == its.settings.keys()
    assert {key for key in own.settings if own.settings[key] != its.settings[key]} == declared
    # What is run differs in options of those keys: a script could not slip in a word that is no setting.
    options = {option for option in own.options | its.options if own.options.get(option) != its.options.get(option)}
    keys = {option.removeprefix("--").removeprefix("no-").replace("-", "_") for option in options}
    launch = {"standalone", "node_rank", "master_addr", "master_port"} if "nnodes" in declared else set()
    assert keys <= declared | launch


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("run_full_4k_multinode.sh", "padded 4096 pp 3 cp 1 ep 8 dp 8 world 24"),
        ("run_full_4k_thd_multinode.sh", "best-fit 4096 pp 3 cp 1 ep 8 dp 8 world 24"),
        ("run_full_128k_thd_multinode.sh", "best-fit 131072 pp 3 cp 8 ep 8 dp 1 world 24"),
        ("run_128k_thd_packed.sh", "best-fit 131072 pp 1 cp 8 ep 8 dp 1 world 8"),
    ],
)
def test_shapes(recipe: str, expected: str) -> None:
    found = resolved(recipe).settings
    sizes = " ".join(f"{name} {found[name]}" for name in ("pp", "cp", "ep", "dp", "world"))
    assert f"{found['mode']} {found['window']} {sizes}" == expected


@pytest.mark.parametrize("recipe", SCRIPTS)
def test_a_dry_run_is_sorted_and_says_what_is_off(recipe: str) -> None:
    done = resolved(recipe)
    keys = list(done.settings)
    assert keys == sorted(keys)
    for wish, asked in (("offload", "1.0"), ("recompute", "on")):
        is_offered = wish in train_options()
        assert (f"--{wish}" in done.command) == is_offered
        assert (f"{wish} {asked} is off: v4model train does not offer --{wish}" in done.err) != is_offered
        assert (done.settings[wish] == "off") != is_offered
    assert ("preflight on is off: it looks" in done.err) == (done.settings["pp"] != "1")


def test_every_option_of_training_is_a_setting() -> None:
    positive = {name for name in train_options() if not name.startswith("no-")}
    assert positive <= {key.replace("_", "-") for key in resolved(BASE).settings}


def test_a_smoke_run_trains(tmp_path: Path) -> None:
    output = tmp_path / "run"
    quiet = {"OMP_NUM_THREADS": "1"}
    done = run("run_128k_thd_packed.sh", "--smoke", "--output", str(output), environment=quiet)
    assert done.code == 0, done.err
    records = read_records(output / "log.jsonl")
    assert [record.step for record in records] == [0, 1]
    assert all(math.isfinite(record.loss) and record.supervised_tokens > 0 for record in records)
    assert records[0].loss != records[1].loss
    assert (output / "checkpoints" / "step-00000002").is_dir()


def test_the_command_line_beats_the_environment_beats_smoke_beats_the_recipe() -> None:
    surroundings = {"V4_WINDOW": "2048", "V4_STEPS": "5", "V4_SET": "index_topk=2 hc_mult=2"}
    done = run("run_128k_thd_packed.sh", "--dry-run", "--smoke", "--steps=7", environment=surroundings)
    found = done.settings
    assert [found[key] for key in ("steps", "window", "preset", "mode")] == ["7", "2048", "tiny", "best-fit"]
    assert done.options["--set"] == ["--set", "index_topk=2", "--set", "hc_mult=2"]


def test_help_lists_every_setting_with_the_default_of_the_recipe() -> None:
    done = run("run_full_128k_thd_multinode.sh", "--help")
    derived = {"dp", "packs", "world"}
    for key in resolved(BASE).settings.keys() - derived:
        assert f"--{key.replace('_', '-')} " in done.out
        assert f"V4_{key.upper()} " in done.out
    assert "tokens of a pack [131072]" in done.out
    assert "(padded, best-fit, sequential) [best-fit]" in done.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--cp", "7"],
            "got 24 ranks (3 nodes of 8); expected a multiple of cp * pp = 21; where: nnodes, gpus_per_node",
        ),
        (["--nnodes", "2"], "got 16 ranks (2 nodes of 8); expected a multiple of cp * pp = 3"),
        (["--ep", "5"], "got ep 5; expected a divisor of dp * cp = 8; where: --ep"),
        (["--node-rank", "3"], "got node_rank 3; expected less than the 3 nodes; where: --node-rank"),
        (["--window", "0"], "got window '0'; expected a whole number from 1; where: --window"),
        (["--offload", "1.5"], "got offload '1.5'; expected a number from 0 to 1; where: --offload"),
        (["--resume", "yes"], "got resume 'yes'; expected one of on, off; where: --resume"),
        (["--mode", "bshd"], "got mode 'bshd'; expected one of padded, best-fit, sequential; where: --mode"),
        (["--dtype", "float"], "got dtype 'float'; expected one of float64, float32, bfloat16; where: --dtype"),
        (["--lr", "-1"], "got lr '-1'; expected a number from 0, such as 3e-4; where: --lr"),
        (["--decay", "0"], "got decay '0'; expected a whole number from 1, or nothing; where: --decay"),
        (["--set", "index_topk"], "got set 'index_topk'; expected FIELD=VALUE"),
        (["--set", "index_top=1"], "got field 'index_top'; expected a field of V4Config; where: --set"),
        (["--preset", "big"], "got preset 'big'; expected one of tiny, three_kinds, flash, pro"),
        (["--config", "nowhere.json"], "nowhere.json"),
        (["--windwo", "8"], "got a setting 'windwo'; expected one that --help lists; where: --windwo"),
        (["--window"], "got --window without a value"),
        (["data.json"], "got 'data.json'; expected --KEY VALUE"),
        (["--python", "nowhere"], "got no interpreter nowhere; expected Python with v4pack installed"),
        (["--python", "false"], "got false that cannot ask v4model"),
    ],
)
def test_what_contradicts_itself_is_refused_even_dry(words: list[str], sentence: str) -> None:
    done = run(BASE, "--dry-run", *words)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert done.err.startswith("4k-bshd: ")
    assert "Traceback" not in done.err


def test_a_misspelt_variable_is_refused() -> None:
    done = run(BASE, "--dry-run", environment={"V4_WINDWO": "8"})
    assert (done.code, done.out) == (2, "")
    assert "got a setting 'windwo'; expected one that --help lists; where: V4_WINDWO" in done.err


@pytest.mark.parametrize(
    ("words", "answers", "sentence"),
    [
        ([], {}, "got 3 nodes that cannot find each other"),
        (
            ["--master-addr", "a", "--data", "no.json"],
            {},
            "got no data at no.json; expected a file or a folder",
        ),
        (["--master-addr", "a"], {"tokenizer.v4": "got no tokenizer"}, "missing: got no tokenizer"),
        (["--master-addr", "a"], {"launcher.torchrun": "got no torchrun"}, "missing: got no torchrun"),
        (["--master-addr", "a"], {"gpu.count": "got 1 CUDA devices"}, "missing: got 1 CUDA devices"),
    ],
)
def test_what_is_missing_ends_a_run_and_not_a_dry_run(
    tmp_path: Path, words: list[str], answers: dict[str, str], sentence: str
) -> None:
    python = fake_python(tmp_path / "python", HEALTHY | answers)
    done, dry = (run(BASE, *words, *more, python=python) for more in ([], ["--dry-run"]))
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert dry.code == 0
    assert sentence in dry.err


def test_what_is_printed_is_what_is_run(tmp_path: Path) -> None:
    python = fake_python(tmp_path / "the python", HEALTHY)
    words = ["--rdzv-endpoint", "host:1", "--output", "a folder", "--cache", "*"]
    done, dry = (run(BASE, *words, *more, python=python) for more in ([], ["--dry-run"]))
    assert done.code == 0, done.err
    assert done.out.splitlines() == dry.command[dry.command.index(python) + 1 :]
    assert dry.options["--rdzv-id"] == ["--rdzv-id", "4k-bshd"]
    assert (dry.options["--output"][1], dry.options["--cache"][1]) == ("a folder", "*")
    assert "--master-addr" not in dry.command


def test_an_option_that_training_comes_to_offer_is_passed(tmp_path: Path) -> None:
    offers = HEALTHY | {"option.offload": "yes", "option.recompute": "yes"}
    done = run(BASE, "--dry-run", python=fake_python(tmp_path / "python", offers))
    assert (done.options["--offload"], done.options["--recompute"]) == (["--offload", "1.0"], ["--recompute"])
    assert "does not offer" not in done.err


def test_an_option_that_training_must_have_is_not_left_out(tmp_path: Path) -> None:
    without = {name: answer for name, answer in HEALTHY.items() if name != "option.cp"}
    done = run(BASE, "--dry-run", python=fake_python(tmp_path / "python", without))
    assert done.code == 2
    assert "got cp; expected an option that v4model train offers" in done.err


def test_the_interface_reaches_nccl_and_gloo() -> None:
    done = run(BASE, "--dry-run", "--nccl-interface", "eth0")
    assert {"NCCL_SOCKET_IFNAME=eth0", "GLOO_SOCKET_IFNAME=eth0"} <= set(done.command)


@pytest.mark.parametrize("recipe", SCRIPTS)
def test_a_script_can_be_executed_and_stops_at_errors(recipe: str) -> None:
    path = FOLDER / recipe
    assert os.access(path, os.X_OK)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert "set -euo pipefail" in lines


def test_what_the_scripts_need_is_installed_with_them() -> None:
    root = Path(__file__).parents[3]
    tools = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    patterns = tools["setuptools"]["package-data"]["v4model.recipes"]
    others = [path.name for path in FOLDER.iterdir() if path.is_file() and path.suffix != ".py"]
    assert [name for name in others if not any(fnmatch(name, pattern) for pattern in patterns)] == []
