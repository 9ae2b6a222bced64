"""V4Model: names, embeddings, padding, blocks and chunks, determinism, and a gradient for every parameter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch

from suites.v4model.support import LAYOUTS, gradients, random_pack, relative_error, stirred
from v4model import Pack, PackError, PackLayout, V4Model, V4Output, presets

CONFIG = presets.tiny()
ALL_LAYOUTS = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())


Result = tuple[V4Output, dict[str, torch.Tensor]]


def run(model: V4Model, pack: Pack) -> Result:
    """Output with logits, and every parameter's gradient of the loss."""
    model.zero_grad()
    out = model(pack, logits=True)
    out.loss.backward()
    return out, gradients(model)


@pytest.fixture(scope="module")
def model() -> V4Model:
    return stirred(CONFIG)


@pytest.fixture(scope="module")
def healthy(model: V4Model) -> Callable[[PackLayout], Result]:
    """`run` of the model over `random_pack(layout)`, once a layout."""
    return cache(lambda layout: run(model, random_pack(layout)))


def assert_same(got: Result, expected: Result, *, bound: float) -> None:
    """Losses, nlls, logits of every depth and gradients; gradients relative to 1e-3 of the largest at least."""
    for a, b in zip([got[0], *got[0].mtp], [expected[0], *expected[0].mtp], strict=True):
        assert relative_error(a.token_nll, b.token_nll) <= bound
        assert relative_error(a.logits, b.logits) <= bound
        assert relative_error(a.hidden, b.hidden) <= bound
    assert relative_error(got[0].loss, expected[0].loss) <= bound
    floor = 1e-3 * max(float(grad.abs().max()) for grad in expected[1].values())
    errors = {name: relative_error(got[1][name], grad, floor=floor) for name, grad in expected[1].items()}
    worst = max(errors, key=lambda name: errors[name])
    assert errors[worst] <= bound, worst


def test_shapes_and_names_of_the_output(model: V4Model) -> None:
    pack = random_pack(LAYOUTS["slots"])
    tokens, vocab, hidden = 47, CONFIG.vocab_size, CONFIG.hidden_size
    out = model(pack, logits=True)
    assert all(loss.shape == () for loss in (out.loss, out.main_loss, *out.mtp_losses, out.balance_loss, out.kl_loss))
    assert len(out.mtp_losses) == len(out.mtp) == CONFIG.num_nextn_predict_layers
    for depth, result in enumerate([out, *out.mtp]):
        assert result.logits.shape == (tokens, vocab)
        assert result.hidden.shape == (tokens, hidden)
        assert result.token_nll.shape == (tokens,)
        labels = pack.tokens[pack.layout.ahead(depth + 1).clamp_min(0)]
        plain = torch.nn.functional.cross_entropy(result.logits, labels, reduction="none")
        expected = torch.where(pack.layout.ahead(depth + 1) >= 0, plain, 0)
        assert relative_error(result.token_nll, expected) < 1e-12
        assert relative_error(result.hidden @ model.lm_head.weight.T, result.logits) < 1e-12
    for depth, result in enumerate(out.mtp, 1):
        assert torch.equal(result.valid, pack.layout.ahead(depth) >= 0)
    without = model(pack)
    assert without.logits is None
    assert all(depth.logits is None for depth in without.mtp)
    assert torch.equal(without.loss, out.loss)
    assert model.config is CONFIG
    learned = {"trunk.layers.1", "trunk.layers.2", "trunk.layers.3", "mtp.0.block", "mtp.1.block"}
    assert set(out.router_counts) == learned


def test_embeddings_let_a_caller_differentiate(model: V4Model, healthy: Callable[[PackLayout], Result]) -> None:
    pack = random_pack(LAYOUTS["slots"])
    expected, grads = healthy(pack.layout)
    embeddings = model.embed(pack).detach().requires_grad_()
    out = model(pack, embeddings=embeddings)
    assert torch.equal(out.loss, expected.loss)
    grad = torch.autograd.grad(out.loss, embeddings)[0]
    real = pack.layout.real
    table = torch.zeros_like(model.trunk.embed_tokens.weight).index_add(0, pack.tokens[real], grad[real])
    assert relative_error(table, grads["trunk.embed_tokens.weight"]) < 1e-12
    assert not grad[~real].any()
    with pytest.raises(PackError, match=r"got embeddings \[1, 32\]; expected \[47, 32\]"):
        model(pack, embeddings=embeddings[:1])


@ALL_LAYOUTS
def test_padding_gives_zero_and_gets_zero_whatever_it_holds(
    model: V4Model, layout: PackLayout, healthy: Callable[[PackLayout], Result]
) -> None:
    pack, real, expected = random_pack(layout), layout.real, healthy(layout)
    ids = pack.tokens.clone()
    ids[~real] = torch.tensor([-1, 10**9, 0, 511]).repeat(layout.total)[: int((~real).sum())]
    poisoned = run(model, Pack(ids, layout=layout))
    assert_same(poisoned, expected, bound=0.0)
    for result in (poisoned[0], *poisoned[0].mtp):
        assert not result.hidden[~real].any()
        assert not result.logits[~real].any()
        assert not result.token_nll[~real].any()
    embeddings = model.embed(pack).detach()
    embeddings[~real] = float("nan")
    embeddings.requires_grad_()
    out = model(pack, embeddings=embeddings)
    assert torch.equal(out.loss, expected[0].loss)
    grad = torch.autograd.grad(out.loss, embeddings)[0]
    assert not grad[~real].any()
    assert grad.isfinite().all()


def test_a_real_token_with_the_id_of_padding_is_real(model: V4Model) -> None:
    samples = [[0, 0, 5, 0], [0]]
    pack = Pack.from_samples(samples, total=9)
    out = model(pack, logits=True)
    assert out.logits[:5].any(dim=1).all()
    assert out.token_nll[:3].all()
    assert out.counts.labels[0] == 3


def test_token_outside_the_vocabulary_is_refused_with_its_place(model: V4Model) -> None:
    layout = PackLayout.from_lengths([3, 4], slots=[5, 4])
    for bad in (512, -1):
        ids = torch.zeros(9, dtype=torch.int64)
        ids[7] = bad
        with pytest.raises(PackError) as caught:
            model(Pack(ids, layout=layout))
        assert caught.value.got == f"token id {bad}"
        assert caught.value.expected == "0 to 511"
        assert caught.value.where == "sample 1 of 2, position 2 (token 7)"


@ALL_LAYOUTS
def test_every_parameter_has_a_finite_gradient(layout: PackLayout, healthy: Callable[[PackLayout], Result]) -> None:
    _, grads = healthy(layout)
    assert [name for name, grad in grads.items() if not grad.isfinite().all()] == []


@ALL_LAYOUTS
def test_an_indexer_that_learns_nothing_has_gradients_of_zero(layout: PackLayout) -> None:
    model = stirred(replace(CONFIG, index_kl_coef=0.0))
    with torch.no_grad():
        # 0 times this would be no number.
        model.trunk.layers["1"].self_attn.indexer.compressor.kv_norm.weight.fill_(float("inf"))
    again = V4Model(model.config, dtype=torch.float64, recompute=True)
    whole_blocks = V4Model(model.config, dtype=torch.float64, recompute=True, recompute_within=False)
    for each in (again, whole_blocks):
        each.load_state_dict(model.state_dict())
    for each in (model, again, whole_blocks):
        found = run(each, random_pack(layout))[1]
        of_indexers = {name: grad for name, grad in found.items() if ".indexer." in name}
        assert len(of_indexers) == 3 * 6
        assert not any(grad.any() for grad in of_indexers.values())
        assert all(grad.isfinite().all() for grad in found.values())


def test_gradients_are_not_zero_where_a_pack_reaches_everything(model: V4Model) -> None:
    _, grads = run(model, random_pack(PackLayout.from_lengths([61, 40])))
    assert [name for name, grad in grads.items() if not grad.any()] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"loss_chunk_tokens": 1},
        {"loss_chunk_tokens": 7},
        {"attention_block_tokens": 1},
        {"attention_block_tokens": 13},
        {"fixed_shape_experts": False},
    ],
    ids=str,
)
def test_blocks_chunks_and_expert_shapes_change_nothing(
    model: V4Model, changes: dict[str, int], healthy: Callable[[PackLayout], Result]
) -> None:
    other = V4Model(replace(CONFIG, **changes), dtype=torch.float64)
    other.load_state_dict(model.state_dict())
    layout = LAYOUTS["slots"]
    assert_same(run(other, random_pack(layout)), healthy(layout), bound=1e-12)


def test_same_seed_same_weights_and_same_bits() -> None:
    pack = random_pack(LAYOUTS["ragged"])
    one, two, other = (V4Model(CONFIG, dtype=torch.float64, seed=seed) for seed in (3, 3, 4))
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, two.state_dict()[name]), name
    assert_same(run(one, pack), run(two, pack), bound=0.0)
    assert not torch.equal(one.lm_head.weight, other.lm_head.weight)
    assert torch.equal(V4Model(CONFIG, dtype=torch.float32, seed=3).lm_head.weight.double(), one.lm_head.weight)


def test_rebalancing_moves_every_learned_router_and_nothing_else() -> None:
    model = V4Model(CONFIG, dtype=torch.float64)
    out = model(random_pack(LAYOUTS["slots"]))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.rebalance_routers(out.router_counts)
    for name, tensor in model.state_dict().items():
        if not name.endswith("e_score_correction_bias"):
            assert torch.equal(tensor, before[name]), name
            continue
        counts = out.router_counts[name.removesuffix(".mlp.gate.e_score_correction_bias")]
        expected = CONFIG.router_bias_rate * torch.sign(counts.sum() / CONFIG.n_routed_experts - counts).double()
        assert torch.equal(tensor, expected), name
        assert tensor.any()


def test_layout_is_required(model: V4Model) -> None:
    with pytest.raises((TypeError, AttributeError)):
        model(torch.zeros(4, dtype=torch.int64))
    with pytest.raises(TypeError):
        model(random_pack(LAYOUTS["ragged"]), True)  # noqa: FBT003 - the refusal of it
