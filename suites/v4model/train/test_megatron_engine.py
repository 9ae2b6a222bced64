"""The engine on megatron-core gives what the one on torch gives: on one rank and on meshes, saved and read again.

Its CUDA-only parts run on the CPU here, over gloo (suites/v4model/parallel/cuda_names.py); H200 figures are in
v4model/recipes/README_thd_packed.md.
"""

from __future__ import annotations

import gc
import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from harness.subjects.rank_pool import RankPool
from suites.v4model.parallel.cuda_names import cuda_means_cpu
from v4model import ConfigError, Pack, PackLayout, V4Model, hf, presets
from v4model.pack.counts import counts_of
from v4model.parallel.groups import Mesh
from v4model.parallel.volume import context_bytes
from v4model.train.engine import Engine, StepLosses
from v4model.train.engines import engine_of
from v4model.train.feed import StepPacks
from v4model.train.settings import TrainSettings

CONFIG = presets.tiny()
STEPS, PACKS = 4, 2
ROUNDING = 2e-5
"""Of float32 losses and norms, relative: sums in another order, then up to three updates made with them."""


def _settings(mesh: Mesh, *, engine: str = "megatron", dtype: str = "float32", seed: int = 0) -> TrainSettings:
    return TrainSettings(
        config=CONFIG,
        steps=STEPS,
        packs_per_step=PACKS,
        learning_rate=1e-3,
        warmup_steps=2,
        engine=engine,
        dtype=dtype,
        seed=seed,
        mesh=mesh,
    )


def _packs(step: int, *, replica: int, replicas: int) -> StepPacks:
    """Ragged packs of 96 tokens, some of them padding."""
    packs = []
    for number in range(PACKS):
        source = torch.Generator().manual_seed(10 * step + number)
        layout = PackLayout.from_lengths([[33, 5, 40], [17, 64, 9]][number], total=96)
        tokens = torch.randint(0, CONFIG.vocab_size, (96,), generator=source)
        packs.append(Pack(tokens, layout=layout, supervised=torch.rand(96, generator=source) < 0.7))
    return StepPacks(
        own=packs[replica::replicas],
        numbers=list(range(PACKS)),
        counts=counts_of(packs, depths=CONFIG.num_nextn_predict_layers),
        real_tokens=0,
        without_hca=0,
    )


def _train(engine: Engine, *, first: int = 0, end: int = STEPS) -> list[StepLosses]:
    found = []
    for step in range(first, end):
        packs = _packs(step, replica=engine.replica, replicas=engine.mesh.dp)
        found.append(engine.gradients(packs))
        engine.update(step, found[-1])
    return found


@contextmanager
def _megatron_on_cpu() -> Iterator[None]:
    from v4model.parallel.megatron import parallel_state

    torch.set_num_threads(1)
    with warnings.catch_warnings(), cuda_means_cpu():
        # Of what megatron-core calls in torch.
        for category in (FutureWarning, UserWarning, DeprecationWarning):
            warnings.simplefilter("ignore", category)
        try:
            yield
        finally:
            # megatron-core forgets its groups, but their threads would stay with this rank, and it serves many meshes:
            # three a group, which wake up a hundred times a second.
            made = parallel_state._global_process_group_list
            parallel_state.destroy_model_parallel()
            for group in made[1:] if made else []:  # the first one stands for all ranks
                dist.destroy_process_group(group)
            gc.collect()  # an engine and its groups refer to each other


def _run(mesh: Mesh, dtype: str = "float32") -> list[StepLosses]:
    with _megatron_on_cpu():
        return _train(engine_of(_settings(mesh, dtype=dtype)))


def _sent_bytes(mesh: Mesh, kind: str) -> tuple[int, int]:
    """Of all ranks, in a step on either engine."""
    with _megatron_on_cpu():
        engine = engine_of(replace(_settings(mesh, engine=kind), recompute=True))
        before = engine.sent_bytes
        _train(engine, end=1)
        return engine.all_sent_since(before)


def _unreached(mesh: Mesh, recompute: bool) -> list[str]:  # noqa: FBT001 - sent to another process by position
    """Parameters that no gradient came to; the indexer learns nothing."""
    settings = replace(_settings(mesh), config=replace(CONFIG, index_kl_coef=0.0), recompute=recompute)
    with _megatron_on_cpu():
        engine = engine_of(settings)
        missing = set()
        for name, parameter in engine.model.named_parameters():
            missing.add(name)
            parameter.register_post_accumulate_grad_hook(lambda _, name=name: missing.discard(name))
        engine.gradients(_packs(0, replica=engine.replica, replicas=mesh.dp))
        return sorted(missing)


def _save_after_two(mesh: Mesh, folder: Path, dtype: str = "float32") -> tuple[list[StepLosses], dict[str, str]]:
    """The steps after it was saved, and this rank's weights at the end."""
    with _megatron_on_cpu():
        engine = engine_of(_settings(mesh, dtype=dtype))
        _train(engine, end=2)
        engine.save(folder)
        return _train(engine, first=2), _weights(engine)


def _go_on(mesh: Mesh, folder: Path, dtype: str = "float32") -> tuple[list[StepLosses], dict[str, str]]:
    with _megatron_on_cpu():
        # Of another seed: nothing of its own may remain.
        engine = engine_of(_settings(mesh, dtype=dtype, seed=9))
        engine.load(folder)
        return _train(engine, first=2), _weights(engine)


def _read_and_save(mesh: Mesh, source: Path, folder: Path) -> None:
    with _megatron_on_cpu():
        engine = engine_of(_settings(mesh, seed=7))
        engine.load(source)
        engine.save(folder)


def _from_weights(mesh: Mesh, folder: Path, kind: str = "megatron") -> list[StepLosses]:
    with _megatron_on_cpu():
        engine = engine_of(_settings(mesh, engine=kind, seed=9))
        engine.load_weights(folder)
        return _train(engine)


def _weights(engine: Engine) -> dict[str, str]:
    """A digest of each of this rank's weights."""
    state = engine.model.state_dict()
    return {
        name: hashlib.sha256(weight.view(torch.uint8).numpy().tobytes()).hexdigest() for name, weight in state.items()
    }


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[int, RankPool]]:
    pools: dict[int, RankPool] = {}
    yield pools
    for pool in pools.values():
        pool.close()


def _ask(pools: dict[int, RankPool], mesh: Mesh, function: object, *arguments: object) -> list[Any]:
    if mesh.world not in pools:
        pools[mesh.world] = RankPool(mesh.world, with_children=True)  # that write checkpoints
    return pools[mesh.world].call(function, [(mesh, *arguments)] * mesh.world)  # type: ignore[arg-type]


def _losses_on(pools: dict[int, RankPool], mesh: Mesh, dtype: str = "float32") -> list[StepLosses]:
    answers = _ask(pools, mesh, _run, dtype)
    assert all(answer == answers[0] for answer in answers)
    return answers[0]


def _assert_close(found: list[StepLosses], expected: list[StepLosses], *, bound: float) -> None:
    for step, (got, wanted) in enumerate(zip(found, expected, strict=True)):
        for name in ("loss", "main", "balance", "kl", "grad_norm"):
            error = abs(getattr(got, name) - getattr(wanted, name)) / abs(getattr(wanted, name))
            assert error <= bound, f"{name} of step {step}: {error:.1e}"
        for one, other in zip(got.mtp, wanted.mtp, strict=True):
            assert abs(one - other) / abs(other) <= bound


@pytest.fixture(scope="module")
def on_torch() -> list[StepLosses]:
    return _train(engine_of(_settings(Mesh(), engine="torch")))


MESHES = {
    "one rank": Mesh(),
    "cp 2": Mesh(cp=2),
    "cp 2, ep 2": Mesh(cp=2, ep=2),
    "dp 2, ep 2": Mesh(dp=2, ep=2),
    "pp 2": Mesh(pp=2),
    "pp 3": Mesh(pp=3),
    "pp 2, cp 2, ep 2": Mesh(pp=2, cp=2, ep=2),
    "cp 4, ep 4": Mesh(cp=4, ep=4),
}


@pytest.mark.parametrize("name", MESHES)
def test_a_mesh_gives_the_losses_and_norms_of_torch_on_one_rank(
    pools: dict[int, RankPool], on_torch: list[StepLosses], name: str
) -> None:
    found = _losses_on(pools, MESHES[name])
    _assert_close(found, on_torch, bound=ROUNDING)
    assert found[-1].main < found[0].main


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", ["one rank", "pp 2, cp 2, ep 2"])
def test_data_parallelism_gets_every_gradient_where_the_indexer_learns_nothing(
    pools: dict[int, RankPool], name: str, *, recompute: bool
) -> None:
    # Megatron reduces a bucket when all its gradients are there, if it overlaps that with the backward pass.
    assert _ask(pools, MESHES[name], _unreached, recompute) == [[]] * MESHES[name].world


@pytest.mark.parametrize(
    ("name", "dtype"),
    # In bfloat16 norms, mHC, gates and sinks stay in float32, so that both sorts of weights are saved side by side.
    [("one rank", "float32"), ("cp 2, ep 2", "float32"), ("pp 2", "float32"), ("cp 2, ep 2", "bfloat16")],
)
def test_a_saved_run_goes_on_to_the_bit(pools: dict[int, RankPool], tmp_path: Path, name: str, dtype: str) -> None:
    expected = _ask(pools, MESHES[name], _save_after_two, tmp_path / "state", dtype)
    _assert_same(_ask(pools, MESHES[name], _go_on, tmp_path / "state", dtype), expected)


@pytest.mark.parametrize("kind", ["torch", "megatron"])
def test_both_engines_send_what_the_formula_says(pools: dict[int, RankPool], kind: str) -> None:
    mesh = Mesh(cp=2, ep=2)
    (cp_bytes, ep_bytes), again = _ask(pools, mesh, _sent_bytes, kind)
    layouts = [pack.layout for pack in _packs(0, replica=0, replicas=1).own]
    assert cp_bytes == context_bytes(CONFIG, layouts, ranks=2, stages=1, dtype=torch.float32, recompute=True)
    assert ep_bytes > 0
    assert again == (cp_bytes, ep_bytes)


@pytest.mark.parametrize(
    ("written", "read"),
    [("cp 2, ep 2", "pp 2"), ("pp 2", "one rank"), ("one rank", "cp 2"), ("one rank", "dp 2, ep 2")],
)
def test_another_mesh_reads_all_that_was_saved(
    pools: dict[int, RankPool], tmp_path: Path, written: str, read: str
) -> None:
    saved, again = tmp_path / "saved", tmp_path / "again"
    expected = _ask(pools, MESHES[written], _save_after_two, saved)
    (losses, _), *_ = _ask(pools, MESHES[read], _go_on, saved)
    _assert_close(losses, expected[0][0], bound=ROUNDING)
    # What the other mesh read, it writes: what it lost, or read to another place, the first one misses to the bit.
    _ask(pools, MESHES[read], _read_and_save, saved, again)
    _assert_same(_ask(pools, MESHES[written], _go_on, again), expected)


def _assert_same(found: list[Any], expected: list[Any]) -> None:
    for (losses, weights), (same_losses, same_weights) in zip(found, expected, strict=True):
        assert losses == same_losses
        assert [name for name, weight in weights.items() if weight != same_weights[name]] == []


def test_both_engines_begin_from_published_weights(pools: dict[int, RankPool], tmp_path: Path) -> None:
    hf.save(V4Model(CONFIG, seed=4), tmp_path)
    expected = _from_weights(Mesh(), tmp_path, "torch")
    found = _ask(pools, MESHES["cp 2, ep 2"], _from_weights, tmp_path)
    _assert_close(found[0], expected, bound=ROUNDING)
    own = _train(engine_of(_settings(Mesh(), engine="torch", seed=9)), end=1)
    assert abs(own[0].main - expected[0].main) > 1e-3


def test_bfloat16_follows_float32(pools: dict[int, RankPool], on_torch: list[StepLosses]) -> None:
    found = _losses_on(pools, MESHES["cp 2"], "bfloat16")
    # 8 bits of mantissa over some 30 products in a row, averaged over the labels.
    _assert_close([_only_losses(step) for step in found], [_only_losses(step) for step in on_torch], bound=0.05)


def _only_losses(step: StepLosses) -> StepLosses:
    return StepLosses(loss=step.loss, main=step.main, mtp=step.mtp, balance=step.balance, kl=1.0, grad_norm=1.0)


def test_parameters_are_not_gathered_while_the_loss_reads_them() -> None:
    from v4model.parallel.megatron.training import OptimizerChoices

    constants = {"learning_rate": 1e-3, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8}
    with pytest.raises(ConfigError, match="overlap_param_gather with the chunked linear cross entropy"):
        OptimizerChoices(**constants, clip_norm=1.0, overlap_param_gather=True)


@pytest.mark.parametrize(
    ("changes", "got"),
    [({"dtype": "float64"}, "got float64"), ({}, "got no process group")],
)
def test_what_megatron_cannot_is_one_sentence(changes: dict[str, str], got: str) -> None:
    with pytest.raises(ConfigError, match=got):
        engine_of(_settings(Mesh(), **changes))
