"""Which stages a host with so many GPUs has, and that the seed's recipe takes every one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from suites.v4model.recipes.scripts import FOLDER, fake_python, run
from v4model.recipes.one_host.stages import Host, Stage, fitting, on_gpus, rehearsal, stages
from v4model.recipes.probe import train_options

H200 = 150.75e9


def host(gpus: int, *, memory: float = H200, host_memory: float = 1e12) -> Host:
    return Host(gpus=gpus, memory=memory, host_memory=host_memory)


def planned(gpus: int) -> dict[str, Stage]:
    found = stages(host(gpus), Path("out"), sizes=on_gpus(), data="alpaca.json", longest=600)
    return {stage.name: stage for stage in found}


def test_eight_gpus_train_on_1_2_4_and_8() -> None:
    found = planned(8)
    trained = ["scaling-1", "scaling-2", "scaling-4", "scaling-8", "seed-131072", "deep-131072", "deep-4096"]
    assert list(found) == ["ranks", "properties", *trained]
    assert found["ranks"].command[3:5] == ["--gpus", "8"]
    words = found["properties"].command
    assert words[words.index("--cp") + 1] == "2,4,8"
    assert words[words.index("--subject") + 1] == "v4model-nccl"
    for name in trained:
        training = found[name].training
        assert training is not None
        assert training.steps == 10
        assert training.window * training.packs == 131072, "every step has as many tokens"


def test_every_size_has_its_own_context_and_expert_ranks_and_the_same_model() -> None:
    found = [stage.training for name, stage in planned(8).items() if name.startswith("scaling")]
    assert [(run.gpus, run.cp, run.ep) for run in found if run] == [(1, 1, 1), (2, 2, 2), (4, 4, 4), (8, 8, 8)]
    assert len({(str(run.changes), run.window, run.offload) for run in found if run}) == 1


def test_three_gpus_are_used_as_1_2_and_3() -> None:
    assert host(3).sizes == (1, 2, 3)
    assert host(1).sizes == (1,)
    assert "ranks" not in planned(1)


@pytest.mark.parametrize("gpus", [4, 8])
def test_the_recipe_takes_every_stage(tmp_path: Path, gpus: int) -> None:
    """With an interpreter that answers for a machine with GPUs; what it prints is what it would train with."""
    answers = {f"option.{name}": "yes" for name in train_options()} | {"launcher.torchrun": "yes"}
    answers |= {"model.config": "yes", "tokenizer.v4": "yes"}
    python = fake_python(tmp_path / "python", answers)
    for stage in planned(gpus).values():
        if stage.training is None:
            continue
        at = next(index for index, word in enumerate(stage.command) if word.endswith(".sh"))
        words = [word for word in stage.command[at + 1 :] if not word.startswith("--python=")]
        done = run(Path(stage.command[at]).name, "--dry-run", *words, python=python)
        assert done.code == 0, done.err
        training = stage.training
        expected = {
            "world": training.gpus,
            "dp": training.gpus // training.cp,
            "packs": training.packs,
            "window": training.window,
            "cp": training.cp,
            "ep": training.ep,
            "set": " ".join(f"{name}={value}" for name, value in training.changes.items()),
            "output": f"out/{stage.name}",
            "data": "alpaca.json",
            "engine": "megatron",
            "dtype": "bfloat16",
            "offload": f"{training.offload:g}",
            "checkpoints": "off",
        }
        assert {key: done.settings[key] for key in expected} == {key: str(value) for key, value in expected.items()}


def test_as_many_experts_as_fit_and_no_more_offload_than_needed() -> None:
    sizes = on_gpus()

    def found(**machine: float) -> tuple[int | None, float]:
        gpus = int(machine.pop("gpus", 8))
        return fitting(host(gpus, **machine), sizes=sizes, layers=sizes.layers, longest=600)

    cards = [found(memory=gigabytes * 1e9) for gigabytes in (150, 60, 40, 30)]
    assert cards == [(256, 0.0), (256, 1.0), (128, 1.0), (32, 1.0)]
    assert [found(gpus=gpus)[0] for gpus in (1, 2, 4)] == [64, 128, 256]
    # A host without memory takes no optimizer.
    experts, offload = found(memory=60e9, host_memory=1e9)
    assert experts is not None
    assert (experts < 256, offload) == (True, 0.0)
    assert fitting(host(8), sizes=rehearsal(), layers={}, longest=600) == (None, 0.0)


def test_a_stage_is_read_as_it_was_written() -> None:
    for stage in planned(4).values():
        assert Stage.from_json(stage.to_json()) == stage


def test_the_script_says_what_its_first_word_is() -> None:
    done = run("measure_one_host.sh", "--rehearsal")
    assert (done.code, done.out) == (2, "")
    assert "got '--rehearsal'; expected how many GPUs, such as 8; where: the first word" in done.err
    assert (FOLDER / "measure_one_host.sh").stat().st_mode & 0o111
