"""Routers: the bias chooses, the affinity weighs, token ids decide in hash layers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from suites.v4model.support import leaf, randn, random_pack
from v4model import presets
from v4model.exchange import Ranks
from v4model.layers.context import PackContext, context_of
from v4model.layers.router import HashRouter, LearnedRouter
from v4model.model import V4Model
from v4model.pack import PackLayout

CONFIG = presets.tiny()
E, K, D = CONFIG.n_routed_experts, CONFIG.num_experts_per_tok, CONFIG.hidden_size
LAYOUT = PackLayout.from_lengths([5, 3], slots=[7, 4])


def context() -> PackContext:
    pack = random_pack(LAYOUT)
    return context_of(pack, config=CONFIG, ranks=Ranks.one(), dtype=torch.float64, device=torch.device("cpu"))


def learned() -> LearnedRouter:
    router = LearnedRouter(CONFIG, layer=1, dtype=torch.float64)
    with torch.no_grad():
        router.weight.copy_(randn(E, D, seed=1))
        router.e_score_correction_bias.copy_(randn(E, seed=2))
    return router


def test_learned_router_chooses_with_the_bias_and_weighs_without() -> None:
    router, x = learned(), randn(LAYOUT.total, D)
    routing = router(x)
    for t in range(LAYOUT.total):
        affinity = [math.sqrt(math.log1p(math.exp(float(router.weight[e].detach() @ x[t])))) for e in range(E)]
        biased = [a + float(router.e_score_correction_bias[e]) for e, a in enumerate(affinity)]
        chosen = sorted(range(E), key=lambda e: -biased[e])[:K]
        assert routing.experts[t].tolist() == chosen
        total = sum(affinity[e] for e in chosen)
        expected = [CONFIG.routed_scaling_factor * affinity[e] / total for e in chosen]
        assert routing.weights[t].tolist() == pytest.approx(expected, rel=1e-12)


def test_statistics_count_the_counted_tokens_alone() -> None:
    router, x = learned(), leaf(LAYOUT.total, D)
    routing = router(x)
    counted = LAYOUT.ahead(1) >= 0  # as at the first MTP depth: the last token of each sample is left out
    statistics = router.statistics(routing, counted=counted, context=context())
    assert int(statistics.tokens) == 4 + 2
    expected = torch.bincount(routing.experts[counted].flatten(), minlength=E)
    assert torch.equal(statistics.counts, expected)
    grad = torch.autograd.grad(statistics.balance_sum, x)[0]
    assert grad[counted].any(1).all()
    assert not grad[~counted].any()


def test_bias_moves_against_the_load_by_its_rate() -> None:
    router = LearnedRouter(replace(CONFIG, n_routed_experts=4, router_bias_rate=0.25), layer=1, dtype=torch.float32)
    with torch.no_grad():
        router.e_score_correction_bias.copy_(torch.tensor([0.0, 1.0, 2.0, 3.0]))
    router.rebalance(torch.tensor([10, 2, 4, 0]))  # mean 4
    assert router.e_score_correction_bias.tolist() == [-0.25, 1.25, 2.0, 3.25]
    assert not router.e_score_correction_bias.requires_grad
    assert "e_score_correction_bias" not in dict(router.named_parameters())


def test_hash_router_chooses_by_token_id_and_weighs_by_affinity() -> None:
    router = HashRouter(CONFIG, dtype=torch.float64)
    with torch.no_grad():
        router.weight.copy_(randn(E, D, seed=1))
        router.tid2eid.copy_(torch.rand(512, E, generator=torch.Generator().manual_seed(3)).argsort(1)[:, :K])
    inputs = context()
    routing = router(randn(LAYOUT.total, D), tokens=inputs.tokens)
    assert torch.equal(routing.experts, router.tid2eid[inputs.tokens])
    weights = routing.affinity.gather(1, routing.experts)
    weights = CONFIG.routed_scaling_factor * weights / weights.sum(1, keepdim=True)
    torch.testing.assert_close(routing.weights, weights, rtol=1e-12, atol=0)
    assert (routing.weights[:, 0] - routing.weights[:, 1]).abs().min() > 1e-3, "not uniform"
    other = router(randn(LAYOUT.total, D, seed=9), tokens=inputs.tokens)
    assert torch.equal(other.experts, routing.experts), "the hidden state has no say"


def test_padding_asks_the_table_for_a_fixed_row() -> None:
    ids = context().tokens
    assert not ids[~LAYOUT.real].any(), "whatever id the caller left there"
    assert ids[LAYOUT.real].any()


def test_initial_hash_table_gives_distinct_experts_and_uses_all() -> None:
    table = V4Model(CONFIG).get_buffer("trunk.layers.0.mlp.gate.tid2eid")
    assert table.shape == (512, K)
    assert table.dtype == torch.int64
    assert (table.sort(1).values.diff(dim=1) > 0).all()
    share = torch.bincount(table.flatten(), minlength=E) / table.numel()
    assert (share - 1 / E).abs().max() < 0.05


def test_hash_layers_come_first_and_mtp_never_hashes() -> None:
    model = V4Model(replace(CONFIG, num_hash_layers=2))
    kinds = [type(block.mlp.gate) for block in [*model.trunk.layers.values(), *(depth.block for depth in model.mtp)]]
    assert kinds == [HashRouter] * 2 + [LearnedRouter] * 4
