"""The indexer's scores, its choice and its divergence: ties, shapes, and what the gradient reaches."""

from __future__ import annotations

import math

import pytest
import torch

from suites.v4model.support import leaf, randn, relative_error
from v4model.ops.pick import index_scores, pick_rows, picks_divergence

INF = float("inf")


def slow_picks(scores: list[float], rows: list[int], *, topk: int) -> list[int]:
    """Best first; equal scores to the lower row."""
    visible = [(-score, row) for score, row in zip(scores, rows, strict=True) if row >= 0]
    best = [row for _, row in sorted(visible)][:topk]
    return best + [-1] * (topk - len(best))


def test_scores_equal_the_loop_and_hide_what_is_not_visible() -> None:
    q, gate, keys = randn(3, 4, 5), randn(3, 4, seed=1), randn(6, 5, seed=2)
    rows = torch.tensor([[0, 1, -1], [3, 4, 5], [-1, -1, -1]])
    found = index_scores(q, gate, keys, rows=rows)
    for t, line in enumerate(rows.tolist()):
        for column, row in enumerate(line):
            if row < 0:
                assert found[t, column] == -INF
            else:
                score = sum(float(gate[t, h]) * max(float(q[t, h] @ keys[row]), 0.0) for h in range(4))
                assert float(found[t, column]) == pytest.approx(score, rel=1e-13)


def test_scores_are_float32_whatever_the_model() -> None:
    q, gate, keys = randn(2, 3, 4).bfloat16(), randn(2, 3, seed=1).bfloat16(), randn(5, 4, seed=2).bfloat16()
    rows = torch.arange(5).repeat(2, 1)
    found = index_scores(q, gate, keys, rows=rows)
    assert found.dtype == torch.float32
    exact = index_scores(q.double(), gate.double(), keys.double(), rows=rows)
    assert relative_error(found.double(), exact) < 1e-6


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([1.0, 3.0, 2.0], [1, 2]),
        ([2.0, 1.0, 2.0, 2.0], [0, 2]),  # a tie: the lower row
        ([0.0, 0.0, 0.0, 0.0], [0, 1]),  # every ReLU closed
        ([-0.0, 0.0, -0.0], [0, 1]),  # +0 and -0 are equal
        ([0.0, -0.0, 1.0], [2, 0]),
        ([-1.0, -0.0, 0.0], [1, 2]),
    ],
)
def test_ties_go_to_the_lower_window(scores: list[float], expected: list[int]) -> None:
    rows = torch.arange(len(scores))[None]
    assert pick_rows(torch.tensor([scores]), rows=rows, topk=2).tolist() == [expected]


def test_fewer_visible_than_topk() -> None:
    scores = torch.tensor([[1.0, 2.0, -INF], [-INF, -INF, -INF]])
    rows = torch.tensor([[4, 5, -1], [-1, -1, -1]])
    assert pick_rows(scores, rows=rows, topk=5).tolist() == [[5, 4, -1, -1, -1], [-1] * 5]
    assert pick_rows(scores, rows=rows, topk=2).tolist() == [[5, 4], [-1, -1]]
    assert pick_rows(scores[:, :0], rows=rows[:, :0], topk=2).tolist() == [[-1, -1], [-1, -1]]


@pytest.mark.parametrize("columns", [24, 25, 64, 700])
def test_more_columns_change_no_choice(columns: int) -> None:
    # Few distinct scores, so that most choices are ties; sorts change their algorithm with the number of columns.
    scores = torch.randint(-2, 3, (50, 24), generator=torch.Generator().manual_seed(0)).float() * 0.5
    scores[::2] *= -1  # and both zeros
    visible = torch.arange(24) < torch.arange(50)[:, None] % 25
    rows = torch.where(visible, torch.arange(24), -1)
    scores = torch.where(visible, scores, -INF)
    wide_rows = torch.nn.functional.pad(rows, (0, columns - 24), value=-1)
    wide_scores = torch.nn.functional.pad(scores, (0, columns - 24), value=-INF)
    found = pick_rows(wide_scores, rows=wide_rows, topk=4)
    expected = [slow_picks(s, r, topk=4) for s, r in zip(scores.tolist(), rows.tolist(), strict=True)]
    assert found.tolist() == expected


def slow_divergence(scores: torch.Tensor, mass: torch.Tensor, *, picks: torch.Tensor) -> torch.Tensor:
    """Query by query, pick by pick."""
    total = torch.zeros((), dtype=torch.float64)
    for t, line in enumerate(picks.tolist()):
        slots = [slot for slot, row in enumerate(line) if row >= 0]
        normaliser = sum((torch.exp(scores[t, slot]) for slot in slots), torch.zeros(()))
        weight = sum(float(mass[t, slot]) for slot in slots)
        for slot in slots:
            p = float(mass[t, slot]) / weight
            if p > 0:
                total = total + p * (math.log(p) - torch.log(torch.exp(scores[t, slot]) / normaliser))
    return total


def test_divergence_equals_the_loop_and_teaches_the_scores_alone() -> None:
    picks = torch.tensor([[3, 1, 2], [5, -1, -1], [-1, -1, -1], [2, 6, -1], [0, 4, -1]])
    raw, mass = leaf(5, 3), randn(5, 3, seed=1).abs().requires_grad_()
    with torch.no_grad():
        mass[4, 1] = 0.0  # an attention probability that underflowed: p log p is 0 there
    scores = torch.where(picks >= 0, raw, -INF)
    found = picks_divergence(scores, torch.where(picks >= 0, mass, 0), picks=picks)
    expected = slow_divergence(raw, mass.detach(), picks=picks)
    assert found.item() == pytest.approx(expected.item(), rel=1e-13)
    assert found.item() > 0
    grads = torch.autograd.grad(found, [raw, mass], allow_unused=True)
    assert grads[1] is None, "the target is a constant"
    assert relative_error(grads[0], torch.autograd.grad(expected, raw)[0]) < 1e-13
    assert not grads[0][picks < 0].any()


def test_divergence_is_zero_where_scores_agree_or_nothing_is_picked() -> None:
    p = torch.tensor([[0.1, 0.3, 0.6]], dtype=torch.float64)
    picks = torch.tensor([[4, 2, 7]])
    # The mass need not sum to 1: local tokens and the sink hold the rest of the joint softmax.
    assert picks_divergence(p.log() + 5, 0.2 * p, picks=picks).item() == pytest.approx(0, abs=1e-15)
    raw = leaf(2, 3)
    none = torch.full((2, 3), -1)
    found = picks_divergence(torch.where(none >= 0, raw, -INF), torch.zeros(2, 3).double(), picks=none)
    assert found.item() == 0
    assert not torch.autograd.grad(found, raw)[0].any()


def test_divergence_of_a_query_whose_rows_all_lost_to_the_sink_is_finite() -> None:
    raw = leaf(1, 2, dtype=torch.float32)
    found = picks_divergence(raw, torch.zeros(1, 2), picks=torch.tensor([[0, 1]]))
    assert found.item() == 0
    assert torch.autograd.grad(found, raw)[0].isfinite().all()
