"""Losses of a step from sums and counts: what is counted, what divides it, what nothing supervised leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from suites.v4model.support import LAYOUTS, gradients, random_pack, relative_error, stirred
from v4model import Pack, PackLayout, V4Model, V4Output, presets
from v4model.model.loss import losses
from v4model.pack.counts import counts_of

CONFIG = presets.tiny()


@pytest.fixture(scope="module")
def model() -> V4Model:
    return stirred(CONFIG)


def masked_pack(layout: PackLayout, *, seed: int = 0) -> Pack:
    """About half of the tokens count as labels."""
    mask = torch.rand(layout.total, generator=torch.Generator().manual_seed(seed + 50)) < 0.5
    return random_pack(layout, seed=seed, supervised=mask)


def by_hand(out: V4Output, pack: Pack, *, depth: int) -> tuple[float, int]:
    """Sum and count of supervised labels: position t of `depth` predicts t + depth + 1, the mask is the label's."""
    logits = (out if depth == 0 else out.mtp[depth - 1]).logits.detach()
    total, count = 0.0, 0
    for start, length in zip(pack.layout.starts, pack.layout.lengths, strict=True):
        for t in range(length - depth - 1):
            label = start + t + depth + 1
            if pack.supervised[label]:
                total += float(F.cross_entropy(logits[start + t][None], pack.tokens[label][None]))
                count += 1
    return total, count


@pytest.mark.parametrize("name", ["ragged", "tail padding", "slots"])
def test_each_head_divides_by_its_own_count(model: V4Model, name: str) -> None:
    pack = masked_pack(LAYOUTS[name])
    out = model(pack, logits=True)
    sums, counts = out.terms.nll_sums, out.counts.labels
    means = [out.main_loss, *out.mtp_losses]
    expected = [by_hand(out, pack, depth=depth) for depth in range(3)]
    assert len({count for _, count in expected}) == 3, "counts differ between depths"
    for (total, count), found_sum, found_count, mean in zip(expected, sums, counts, means, strict=True):
        assert found_count == count
        assert found_sum.item() == pytest.approx(total, rel=1e-12)
        assert mean.item() == pytest.approx(total / count, rel=1e-12)


def test_total_is_the_sum_of_its_weighted_terms(model: V4Model) -> None:
    out = model(masked_pack(LAYOUTS["slots"]))
    terms, counts = out.terms, out.counts
    main, *mtp = (s / n for s, n in zip(terms.nll_sums, counts.labels, strict=True))
    # Trunk layers 1 to 3, then the block of each depth, whose positions are fewer.
    router_tokens = dict(zip([1, 2, 3, 4, 5], [counts.tokens[depth] for depth in (0, 0, 0, 1, 2)], strict=True))
    assert terms.balance_sums.keys() == router_tokens.keys()
    balance = CONFIG.balance_coef * sum(s / router_tokens[layer] for layer, s in terms.balance_sums.items())
    kl = CONFIG.index_kl_coef * terms.kl_sum / 30  # real tokens, 7 + 1 + 18 + 4
    assert counts.tokens[0] == 30
    assert out.balance_loss.item() == pytest.approx(balance.item(), rel=1e-12)
    assert out.kl_loss.item() == pytest.approx(kl.item(), rel=1e-12)
    expected = main + CONFIG.mtp_scale / 2 * sum(mtp) + balance + kl
    assert out.loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert min(out.balance_loss.item(), out.kl_loss.item()) > 0


def test_routers_count_real_tokens_and_valid_positions(model: V4Model) -> None:
    layout = LAYOUTS["slots"]
    out = model(random_pack(layout))
    # Three learned trunk layers (the first is a hash layer), then two MTP depths.
    valid = [30, 30, 30, *(sum(max(n - depth, 0) for n in layout.lengths) for depth in (1, 2))]
    assert [out.counts.tokens[CONFIG.depth(layer)] for layer in out.terms.balance_sums] == valid
    assert [int(c.sum()) for c in out.router_counts.values()] == [n * CONFIG.num_experts_per_tok for n in valid]


def test_sums_of_packs_add_up_to_those_of_one(model: V4Model) -> None:
    lengths = [9, 1, 18]
    whole = masked_pack(PackLayout.from_lengths(lengths))
    parts = []
    for start, length in zip(whole.layout.starts, lengths, strict=True):
        part = slice(start, start + length)
        parts.append(
            model(Pack(whole.tokens[part], layout=PackLayout.single(length), supervised=whole.supervised[part]))
        )
    out = model(whole)
    terms = out.terms
    assert terms.kl_sum.item() == pytest.approx(sum(part.terms.kl_sum.item() for part in parts), rel=1e-12)
    for depth, found in enumerate(terms.nll_sums):
        total = sum(part.terms.nll_sums[depth].item() for part in parts)
        assert found.item() == pytest.approx(total, rel=1e-12), f"nll of depth {depth}"
    for layer, found in terms.balance_sums.items():
        total = sum(part.terms.balance_sums[layer].item() for part in parts)
        assert found.item() == pytest.approx(total, rel=1e-12), f"balance of layer {layer}"
    counts = parts[0].counts + parts[1].counts + parts[2].counts
    assert counts == out.counts
    by_depth = zip(*(part.terms.nll_sums for part in parts), strict=True)
    merged = replace(terms, nll_sums=tuple(map(sum, by_depth)))
    # A mean of the parts' means would weigh their labels unequally.
    step = losses(merged, counts=counts, config=CONFIG)
    for found, expected in zip((step.main, *step.mtp), (out.main_loss, *out.mtp_losses), strict=True):
        assert found.item() == pytest.approx(expected.item(), rel=1e-12)


def test_losses_of_micro_batches_add_up_to_the_steps(model: V4Model) -> None:
    """With the counts of all, each pack gives its share; a mean of means would weigh labels unequally."""
    packs = [masked_pack(PackLayout.from_lengths(lengths), seed=seed) for seed, lengths in enumerate([[9], [1, 18, 3]])]
    whole = model(masked_together(packs))
    counts = counts_of(packs, depths=CONFIG.num_nextn_predict_layers)
    assert counts == whole.counts
    parts = [model(pack, counts=counts) for pack in packs]
    for name in ("loss", "main_loss", "balance_loss", "kl_loss"):
        total = sum(getattr(part, name).item() for part in parts)
        assert getattr(whole, name).item() == pytest.approx(total, rel=1e-12), name
    for depth, loss in enumerate(whole.mtp_losses):
        assert loss.item() == pytest.approx(sum(part.mtp_losses[depth].item() for part in parts), rel=1e-12)
    assert sum(model(pack).main_loss.item() for pack in packs) / 2 != pytest.approx(whole.main_loss.item(), rel=1e-6)


def masked_together(packs: list[Pack]) -> Pack:
    """One pack of all samples, none of which is padded."""
    layout = PackLayout.from_lengths([length for pack in packs for length in pack.layout.lengths])
    tokens, supervised = (torch.cat([getattr(pack, name) for pack in packs]) for name in ("tokens", "supervised"))
    return Pack(tokens, layout=layout, supervised=supervised)


@pytest.mark.parametrize("name", ["slots", "no window", "padding only"])
def test_nothing_supervised_leaves_the_other_terms(model: V4Model, name: str) -> None:
    layout = LAYOUTS[name]
    none = random_pack(layout, supervised=torch.zeros(layout.total, dtype=torch.bool))
    model.zero_grad()
    out = model(none)
    assert out.main_loss.item() == 0
    assert [loss.item() for loss in out.mtp_losses] == [0, 0]
    assert torch.equal(out.loss, out.balance_loss + out.kl_loss)
    expected = model(random_pack(layout))
    assert torch.equal(out.balance_loss, expected.balance_loss)
    assert torch.equal(out.kl_loss, expected.kl_loss)
    assert torch.equal(out.token_nll, expected.token_nll), "nll is told wherever a label exists"
    (out.main_loss + sum(out.mtp_losses)).backward(retain_graph=True)
    assert not any(p.grad.any() for p in model.parameters() if p.grad is not None)
    model.zero_grad()
    out.loss.backward()
    assert all(grad.isfinite().all() for grad in gradients(model).values())
    assert not gradients(model)["lm_head.weight"].any()


def test_depth_without_a_label_costs_nothing(model: V4Model) -> None:
    out = model(random_pack(PackLayout.from_lengths([2, 1, 2])))  # depth 1 would need three tokens
    assert out.main_loss.item() > 0
    assert [loss.item() for loss in out.mtp_losses] == [0, 0]
    assert out.loss.isfinite()


def test_kl_teaches_the_indexers_and_nothing_else(model: V4Model) -> None:
    pack = random_pack(PackLayout.from_lengths([50, 21]))
    model.zero_grad()
    out = model(pack)
    out.kl_loss.backward(retain_graph=True)
    taught = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    indexers = {name for name, _ in model.named_parameters() if ".indexer." in name}
    assert taught == indexers
    model.zero_grad()
    (out.loss - out.kl_loss).backward()
    assert not any(p.grad.any() for n, p in model.named_parameters() if ".indexer." in n and p.grad is not None)


def test_balance_loss_is_each_samples_own(model: V4Model) -> None:
    lengths = [12, 5, 20]
    pack = random_pack(PackLayout.from_lengths(lengths, slots=[14, 5, 23]))
    alone = []
    for start, length in zip(pack.layout.starts, lengths, strict=True):
        alone.append(model(Pack(pack.tokens[start : start + length], layout=PackLayout.single(length))).terms)
    expected = torch.stack([torch.stack([*terms.balance_sums.values()]) for terms in alone]).sum(0)
    assert relative_error(torch.stack([*model(pack).terms.balance_sums.values()]), expected) < 1e-12
