"""MTP: depth k at t sees tokens up to t + k of its own sample, whatever the number of depths."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from suites.v4model.support import LAYOUTS, gradients, random_pack, relative_error, stirred
from v4model import Pack, PackLayout, V4Config, V4Model, presets
from v4model.exchange import Ranks
from v4model.layers.context import context_of
from v4model.ops.norm import rms_norm

TINY = presets.tiny()


def with_depths(depths: int) -> V4Config:
    return replace(TINY, num_nextn_predict_layers=depths, compress_ratios=(0, 4, 16, 4, *(0, 4, 16)[:depths]))


@pytest.fixture(scope="module")
def model() -> V4Model:
    return stirred(TINY)


@pytest.mark.parametrize("depths", [0, 1, 2, 3])
def test_any_number_of_depths(depths: int) -> None:
    model = stirred(with_depths(depths))
    pack = random_pack(LAYOUTS["slots"])
    out = model(pack, logits=True)
    assert len(out.mtp) == len(out.mtp_losses) == len(out.terms.nll_sums) - 1 == len(out.counts.labels) - 1 == depths
    mtp = sum(loss.item() for loss in out.mtp_losses)
    total = out.main_loss + out.balance_loss + out.kl_loss
    assert out.loss.item() == pytest.approx(total.item() + TINY.mtp_scale / max(depths, 1) * mtp, rel=1e-12)
    out.loss.backward()
    grads = gradients(model)
    assert all(grad.isfinite().all() for grad in grads.values())
    assert all(grads[f"mtp.{depth}.e_proj.weight"].any() for depth in range(depths))


def test_trunk_does_not_depend_on_the_depths() -> None:
    deep, flat = stirred(with_depths(3)), V4Model(with_depths(0), dtype=torch.float64)
    flat.load_state_dict({name: value for name, value in deep.state_dict().items() if not name.startswith("mtp.")})
    outs = [model(random_pack(LAYOUTS["ragged"]), logits=True) for model in (deep, flat)]
    assert torch.equal(outs[0].logits, outs[1].logits)
    assert torch.equal(outs[0].main_loss, outs[1].main_loss)


def test_input_joins_the_embedding_ahead_to_every_stream(model: V4Model) -> None:
    pack = random_pack(LAYOUTS["slots"])
    context = context_of(pack, config=TINY, ranks=Ranks.one(), dtype=torch.float64, device=torch.device("cpu"))
    embedded = model.embed(pack)
    seen: list[torch.Tensor] = []
    hooks = [depth.block.register_forward_pre_hook(lambda _, args: seen.append(args[0])) for depth in model.mtp]
    model(pack)
    for hook in hooks:
        hook.remove()
    blocks = model.trunk(model.trunk.enter(embedded), context=context)
    streams = blocks[max(blocks)].streams  # the K streams, before their HyperHead
    for number, (depth, found) in enumerate(zip(model.mtp, seen, strict=True), 1):
        expected = torch.empty_like(streams)
        for t, source in enumerate(pack.layout.ahead(number).tolist()):
            ahead = embedded[source] if source >= 0 else torch.zeros_like(embedded[0])
            ahead = depth.e_proj.weight @ rms_norm(ahead, eps=TINY.rms_norm_eps, weight=depth.enorm.weight)
            for k in range(TINY.hc_mult):
                normed = rms_norm(streams[t, k], eps=TINY.rms_norm_eps, weight=depth.hnorm.weight)
                expected[t, k] = ahead + depth.h_proj.weight @ normed
        assert relative_error(found, expected) < 1e-12
        streams = depth(streams, embedded, context=context)[1].streams
    assert streams[:, 0].sub(streams[:, 1]).abs().max() > 1e-3, "streams differ"


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_position_sees_up_to_depth_tokens_ahead_and_no_further(model: V4Model, depth: int) -> None:
    layout = PackLayout.from_lengths([11, 14])
    pack = random_pack(layout)
    embeddings = model.embed(pack).detach().requires_grad_()
    out = model(pack, logits=True, embeddings=embeddings)
    logits = out.logits if depth == 0 else out.mtp[depth - 1].logits
    for query, position in ((11 + 6, 6), (3, 3)):
        grad = torch.autograd.grad(logits[query].square().sum(), embeddings, retain_graph=True)[0].abs().sum(1)
        start = query - position
        last = query + depth
        assert grad[last] > 0, "what MTP adds is read"
        assert not grad[last + 1 :].any(), "no future"
        assert not grad[:start].any(), "no neighbour"


def test_invalid_positions_reach_no_valid_one(model: V4Model) -> None:
    pack = random_pack(PackLayout.from_lengths([11, 14]))
    embeddings = model.embed(pack).detach()
    hooks = []
    for number, depth in enumerate(model.mtp, 1):
        invalid = pack.layout.ahead(number) < 0

        def poison(
            _: object, args: tuple[torch.Tensor, ...], *, at: torch.Tensor = invalid
        ) -> tuple[torch.Tensor, ...]:
            return (torch.where(at[:, None, None], 1e3, args[0]), *args[1:])

        hooks.append(depth.block.register_forward_pre_hook(poison))
    poisoned = model(pack, logits=True, embeddings=embeddings)
    for hook in hooks:
        hook.remove()
    clean = model(pack, logits=True, embeddings=embeddings)
    for number in (0, 1):
        valid = clean.mtp[number].valid
        assert torch.equal(poisoned.mtp[number].logits[valid], clean.mtp[number].logits[valid])
        assert not torch.equal(poisoned.mtp[number].logits[~valid], clean.mtp[number].logits[~valid])
    # KL alone is summed over every query that picks, valid or not.
    assert torch.equal(poisoned.balance_loss, clean.balance_loss)
    assert all(torch.equal(a, b) for a, b in zip(poisoned.mtp_losses, clean.mtp_losses, strict=True))
    assert all(torch.equal(poisoned.router_counts[name], counts) for name, counts in clean.router_counts.items())


def test_depths_share_the_lm_head_and_have_their_own_everything_else(model: V4Model) -> None:
    names = {name for name, _ in model.named_parameters() if "lm_head" in name or "embed_tokens" in name}
    assert names == {"lm_head.weight", "trunk.embed_tokens.weight"}
    for own in ("norm.weight", "hc_head.hc_fn", "e_proj.weight", "enorm.weight", "block.mlp.gate.weight"):
        assert f"mtp.0.{own}" in dict(model.named_parameters())


def test_one_token_samples_have_no_valid_position(model: V4Model) -> None:
    out = model(Pack.from_samples([[5], [6], [7]]), logits=True)
    assert not any(depth.valid.any() for depth in out.mtp)
    assert out.counts.tokens == (3, 0, 0)
    assert [int(c.sum()) for c in out.router_counts.values()] == [n * TINY.num_experts_per_tok for n in (3, 3, 3, 0, 0)]
    assert [out.terms.balance_sums[layer].item() for layer in (4, 5)] == [0, 0]
    assert not out.router_counts["mtp.0.block"].any()
