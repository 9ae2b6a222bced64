"""The memory model: exact where it counts, and within a hundredth of what one card held where it follows the code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from suites.v4model.parallel.ranks import CONFIG, drawn_pack
from v4model import ConfigError, V4Config, V4Model, presets
from v4model.layers.share import Share
from v4model.pack.counts import counts_of
from v4model.parallel.groups import Mesh
from v4model.train.engines import engine_of
from v4model.train.feed import StepPacks
from v4model.train.memory import Weights, logits_of, moments_of, peak_of, weights_of
from v4model.train.settings import DTYPES, TrainSettings
from v4model.train.work import OPS, Parts, Work

SHARES = {
    "whole": Share(),
    "first of two": Share(stage=0, stages=2),
    "middle of three": Share(stage=1, stages=3),
    "last of three": Share(stage=2, stages=3),
    "half of the experts": Share(expert_rank=1, expert_ranks=2),
}


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("share", SHARES.values(), ids=SHARES.keys())
def test_weights_are_those_of_a_real_model(share: Share, dtype: str) -> None:
    parameters = list(V4Model(CONFIG, dtype=DTYPES[dtype], share=share).parameters())
    expected = Weights(
        sum(parameter.numel() for parameter in parameters),
        sum(parameter.nbytes for parameter in parameters),
        max(parameter.numel() for parameter in parameters),
    )
    assert sum(weights_of(CONFIG, share=share, dtype=dtype).values(), Weights()) == expected


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_parameters_gradients_and_optimizer_are_exact(dtype: str) -> None:
    engine = engine_of(TrainSettings(config=CONFIG, steps=1, dtype=dtype, recompute=True))
    pack = drawn_pack(0)
    counts = counts_of([pack], depths=CONFIG.num_nextn_predict_layers)
    engine.gradients(StepPacks([pack], [0], counts, pack.layout.real_tokens, 0))
    work = Work(tokens=pack.layout.total, longest=40, dtype=dtype)
    found = moments_of(CONFIG, share=Share(), work=work)["update"]
    parameters = list(engine.model.parameters())
    assert found.parameters == sum(parameter.nbytes for parameter in parameters)
    assert found.gradients == sum(parameter.grad.nbytes for parameter in parameters if parameter.grad is not None)
    state = engine.optimizer.state()
    kept = sum(tensor.nbytes for sort in ("weight", "exp_avg", "exp_avg_sq") for tensor in state[sort].values())
    assert found.optimizer == kept


def flash_width(experts: int) -> V4Config:
    """Flash's sizes, one layer of each kind, and fewer experts."""
    return replace(
        presets.flash(),
        num_hidden_layers=3,
        compress_ratios=(0, 4, 128, 0),
        num_hash_layers=1,
        n_routed_experts=experts,
    )


MEASURED: Mapping[tuple[int, int], float] = {
    (4096, 207): 82.2,
    (8192, 280): 87.7,
    (16384, 314): 89.9,
    (32768, 313): 93.9,
    (65536, 587): 103.5,
    (98304, 587): 119.7,
    (131072, 587): 136.0,
}
"""GB by window and longest sample: `v4model ladder` of Alpaca records on one H200, 2026-11-30."""


@pytest.mark.parametrize(("place", "measured"), MEASURED.items(), ids=[str(window) for window, _ in MEASURED])
def test_what_one_card_held(place: tuple[int, int], measured: float) -> None:
    window, longest = place
    predicted = peak_of(flash_width(32), share=Share(), work=Work(tokens=window, longest=longest)).total / 1e9
    print(f"{window}: predicted {predicted:.1f} GB, measured {measured} GB")
    assert predicted == pytest.approx(measured, rel=0.01)


FAST: Mapping[tuple[int, str], float] = {
    (4096, "none"): 17.9,
    (8192, "none"): 25.3,
    (16384, "none"): 40.2,
    (32768, "blocks"): 36.2,
    (65536, "blocks"): 60.7,
    (131072, "blocks"): 110.6,
    (131072, "within"): 48.2,
}
"""GiB by tokens of one sample and recomputation: forward and backward alone, one H200, 2026-11-30 (LOG.md)."""


@pytest.mark.parametrize(("place", "measured"), FAST.items(), ids=[f"{tokens} {how}" for tokens, how in FAST])
def test_what_the_fast_twins_held(place: tuple[int, str], measured: float) -> None:
    tokens, recompute = place
    config = replace(
        flash_width(32),
        compress_ratios=(0, 4, 128),
        num_hash_layers=0,
        num_nextn_predict_layers=0,
        loss_chunk_tokens=4096,
    )
    work = Work(tokens=tokens, longest=tokens, ops="fast", recompute=recompute)
    moments = moments_of(config, share=Share(), work=work)
    del moments["update"]
    # There was no optimizer.
    predicted = max(parts.total - parts.optimizer for parts in moments.values()) / 2**30
    print(f"{tokens} {recompute}: {predicted:.1f} GiB, measured {measured}: {predicted / measured - 1:+.1%}")
    assert predicted == pytest.approx(measured, rel=0.1)


def test_fast_twins_hold_less_than_plain_operations() -> None:
    for engine in ("torch", "megatron"):
        work = Work(tokens=65536, longest=65536, engine=engine)
        plain, fast = (peak_of(flash_width(32), share=Share(), work=replace(work, ops=ops)) for ops in OPS)
        assert (fast.parameters, fast.optimizer) == (plain.parameters, plain.optimizer)
        assert fast.total < plain.total


def test_an_indexer_that_learns_holds_its_scores() -> None:
    config, work = flash_width(32), Work(tokens=8192, longest=8192, ops="fast")
    idle, learning = (
        moments_of(replace(config, index_kl_coef=coefficient), share=Share(), work=work)["trunk.layers.1"]
        for coefficient in (0.0, 0.1)
    )
    assert learning.scores > idle.scores > 0
    assert learning.pools > idle.pools


def test_work_that_was_not_measured_is_refused() -> None:
    work = Work(tokens=8, longest=8)
    for changes, message in (
        ({"ops": "quick"}, "one of plain, fast"),
        ({"ops": "fast", "recompute": "all"}, "one of none, blocks, within"),
        ({"recompute": "none"}, "of plain operations"),
    ):
        with pytest.raises(ConfigError, match=message):
            replace(work, **changes)


def test_the_peak_wanders_from_the_update_over_the_attention_to_the_streams() -> None:
    def worst(window: int) -> str:
        moments = moments_of(flash_width(32), share=Share(), work=Work(tokens=window, longest=587))
        return max(moments, key=lambda name: moments[name].total)

    assert [worst(window) for window in (4096, 16384, 131072)] == ["update", "trunk.layers.1", "mtp.0.block"]


ON_MEGATRON: Mapping[str, tuple[Mesh, Work, float]] = {
    "one card, 4 x 4,096": (Mesh(), Work(tokens=4096, longest=207, micro_batches=4), 100.6),
    "cp 2, 4 x 4,096": (Mesh(cp=2), Work(tokens=2048, longest=207, micro_batches=4), 65.0),
    "dp 2 ep 2, 4 x 4,096": (Mesh(dp=2, ep=2), Work(tokens=4096, longest=207, micro_batches=2), 55.3),
    "pp 2, 4 x 4,096": (Mesh(pp=2), Work(tokens=4096, longest=207, micro_batches=4), 60.3),
    "cp 2, 131,072": (Mesh(cp=2), Work(tokens=65536, longest=587), 90.0),
}
"""GB of the fullest rank: `v4model train --engine megatron` of Alpaca records on one or two H200, 2026-11-30."""


@pytest.mark.parametrize(("mesh", "work", "measured"), ON_MEGATRON.values(), ids=ON_MEGATRON)
def test_what_a_rank_held_on_megatron(mesh: Mesh, work: Work, measured: float) -> None:
    spread = {"replicas": mesh.stage_size, "expert_replicas": mesh.stage_size // mesh.ep}
    work = replace(work, engine="megatron", **spread)
    ranks = [mesh.share(stage * mesh.stage_size) for stage in range(mesh.pp)]
    predicted = max(peak_of(flash_width(32), share=share, work=work).total for share in ranks) / 1e9
    print(f"{predicted:.1f} GB, measured {measured}: {predicted / measured - 1:+.1%}")
    assert predicted == pytest.approx(measured, rel=0.02)


def test_offload_takes_the_optimizer_off_the_card() -> None:
    work = Work(tokens=4096, longest=4096, engine="megatron")
    on_card, on_host = (
        peak_of(presets.flash(), share=Share(stages=4), work=replace(work, offload=offload)) for offload in (0.0, 1.0)
    )
    assert on_host.optimizer == 0
    assert on_host.total < on_card.total - on_card.optimizer + 1e9


def test_chunks_bound_the_logits() -> None:
    config, work = presets.flash(), Work(tokens=65536, longest=65536)
    chunked, whole = (logits_of(config, work=replace(work, chunked=chunked)) for chunked in (True, False))
    assert whole - chunked == 3 * (65536 - config.loss_chunk_tokens) * config.vocab_size * 4


def test_micro_batches_keep_their_streams() -> None:
    config, share = presets.flash(), Share(stage=1, stages=3)
    one, four = (
        moments_of(config, share=share, work=Work(tokens=8192, longest=8192, micro_batches=number))["trunk.layers.20"]
        for number in (1, 4)
    )
    # A middle stage keeps what it was given and each of its 14 layers' outputs.
    assert four.streams - one.streams == pytest.approx(3 * 15 * 8192 * 4 * 4096 * 2)


def test_parts_add_up() -> None:
    assert Parts(parameters=1, gradients=2, optimizer=4, update=8, streams=16).exact == 15
    assert Parts(parameters=1, streams=16, block=32, pools=64, scores=128, logits=256).total == 497
