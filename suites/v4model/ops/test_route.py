"""Expert affinities, choices, weights, counts and the balance loss of each sample."""

from __future__ import annotations

import math

import pytest
import torch

from suites.v4model.support import leaf, randn, relative_error
from v4model.ops.route import (
    affinities,
    balance_loss,
    choose_experts,
    count_selections,
    expert_weights,
    sum_shares,
)


def test_affinity_is_the_root_of_softplus() -> None:
    logits = torch.tensor([[-5.0, 0.0, 3.0, 40.0]], dtype=torch.float64)
    expected = [math.sqrt(math.log1p(math.exp(x))) for x in logits[0].tolist()]
    assert affinities(logits)[0].tolist() == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("logit", [-80.0, -104.0, -200.0, 200.0])
def test_gradient_is_finite_where_softplus_underflows(logit: float) -> None:
    logits = torch.full((3, 4), logit, requires_grad=True)
    affinity = affinities(logits)
    weights = expert_weights(affinity, torch.tensor([[0, 1]] * 3), scaling=1.5)
    sample = torch.tensor([0, 0, 1])
    counts = count_selections(torch.tensor([[0, 1]] * 3), num_experts=4, sample=sample, num_samples=2)
    shares = sum_shares(affinity, sample=sample, num_samples=2)
    loss = (weights * randn(3, 2, dtype=torch.float32)).sum() + balance_loss(shares, counts, top_k=2)
    loss.backward()
    assert weights.isfinite().all()
    assert loss.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_ties_go_to_the_lower_expert() -> None:
    affinity = torch.tensor([[1.0, 2.0, 2.0, 2.0], [0.5, 0.5, 0.5, 0.5]])
    assert choose_experts(affinity, bias=torch.zeros(4), top_k=2).tolist() == [[1, 2], [0, 1]]
    # The bias makes the tie: 1 + 1 = 2.
    assert choose_experts(affinity[:1], bias=torch.tensor([1.0, 0, 0, 0]), top_k=2).tolist() == [[0, 1]]
    # As many columns as released, where a sort that is not stable would show.
    assert choose_experts(torch.ones(3, 384), bias=torch.zeros(384), top_k=6).tolist() == [list(range(6))] * 3


def test_bias_chooses_and_never_weighs() -> None:
    affinity = leaf(5, 6)
    bias = torch.zeros(6, dtype=torch.float64)
    bias[4] = 100.0
    experts = choose_experts(affinity.detach(), bias=bias, top_k=2)
    assert (experts[:, 0] == 4).all()
    positive = affinities(affinity)
    weights = expert_weights(positive, experts, scaling=2.5)
    for t, chosen in enumerate(experts.tolist()):
        picked = [float(positive[t, e].detach()) for e in chosen]
        assert weights[t].tolist() == pytest.approx([2.5 * a / sum(picked) for a in picked], rel=1e-13)
    assert torch.allclose(weights.sum(1), torch.tensor(2.5, dtype=torch.float64))


def test_counts_leave_padding_out() -> None:
    experts = torch.tensor([[0, 1], [1, 2], [0, 3], [3, 0], [1, 0]])
    sample = torch.tensor([0, 0, -1, 1, -1])
    found = count_selections(experts, num_experts=4, sample=sample, num_samples=3)
    assert found.tolist() == [[1, 2, 1, 0], [1, 0, 0, 1], [0, 0, 0, 0]]


def slow_balance(affinity: torch.Tensor, experts: list[list[int]], sample: list[int]) -> torch.Tensor:
    """sum_s len_s L_s from the specification, L_s = E / (k len_s) * sum_e count_e * mean share_e."""
    num_experts, top_k = affinity.shape[1], len(experts[0])
    total = torch.zeros((), dtype=torch.float64)
    for s in sorted(set(sample) - {-1}):
        tokens = [t for t, owner in enumerate(sample) if owner == s]
        loss = torch.zeros((), dtype=torch.float64)
        for e in range(num_experts):
            count = sum(e in experts[t] for t in tokens)
            share = sum(affinity[t, e] / affinity[t].sum() for t in tokens) / len(tokens)
            loss = loss + count * share
        total = total + len(tokens) * (num_experts / (top_k * len(tokens)) * loss)
    return total


def test_balance_loss_of_each_sample() -> None:
    logits = leaf(9, 4)
    sample = [0, 0, 0, -1, 1, 2, 2, 2, -1]
    affinity = affinities(logits)
    experts = choose_experts(affinity, bias=randn(4, seed=1), top_k=2)
    counts = count_selections(experts, num_experts=4, sample=torch.tensor(sample), num_samples=4)  # sample 3: nothing
    found = balance_loss(sum_shares(affinity, sample=torch.tensor(sample), num_samples=4), counts, top_k=2)
    expected = slow_balance(affinity, experts.tolist(), sample)
    assert found.item() == pytest.approx(expected.item(), rel=1e-13)
    grad = torch.autograd.grad(found, logits, retain_graph=True)[0]
    assert relative_error(grad, torch.autograd.grad(expected, logits)[0]) < 1e-13
    assert not grad[[3, 8]].any(), "padding teaches nothing"
    pack_wide = slow_balance(affinity, experts.tolist(), [0 if s >= 0 else -1 for s in sample])
    assert found.item() != pytest.approx(pack_wide.item(), rel=1e-3), "one loss a sample, not one a pack"


def test_even_use_costs_one_a_token() -> None:
    affinity = torch.ones(8, 4, dtype=torch.float64)
    experts = torch.tensor([[0, 1], [2, 3]] * 4)
    sample = torch.zeros(8, dtype=torch.int64)
    counts = count_selections(experts, num_experts=4, sample=sample, num_samples=1)
    shares = sum_shares(affinity, sample=sample, num_samples=1)
    assert balance_loss(shares, counts, top_k=2).item() == pytest.approx(8.0)


def test_no_token_at_all_costs_nothing() -> None:
    affinity = affinities(leaf(3, 4))
    sample = torch.full((3,), -1)
    counts = count_selections(torch.tensor([[0, 1]] * 3), num_experts=4, sample=sample, num_samples=2)
    loss = balance_loss(sum_shares(affinity, sample=sample, num_samples=2), counts, top_k=2)
    assert loss.item() == 0
    assert loss.requires_grad
