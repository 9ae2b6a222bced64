"""Compression windows against loops; rows that must not be read are never touched, also backward."""

from __future__ import annotations

import pytest
import torch

from suites.v4model.support import BF16, LAYOUTS, leaf, randn, relative_error
from v4model.ops.pool import gather_rows, pool_overlapping_windows, pool_windows
from v4model.pack import PackLayout, windows_of

NAN = float("nan")


def slow_pool(
    kv: torch.Tensor, gate: torch.Tensor, bias: torch.Tensor, *, layout: PackLayout, ratio: int, overlaps: bool
) -> torch.Tensor:
    """[W, d] from the specification: one row, one slot at a time."""
    d = kv.shape[1] // 2 if overlaps else kv.shape[1]
    rows = []
    for start, length in zip(layout.starts, layout.lengths, strict=True):
        for w in range(length // ratio):
            slots = []  # (gate + bias, value), [d] each
            for slot in range(ratio):
                token = start + w * ratio + slot
                if overlaps and w > 0:
                    slots.append((gate[token - ratio, :d] + bias[slot, :d], kv[token - ratio, :d]))
                second = slice(d, 2 * d) if overlaps else slice(0, d)
                slots.append((gate[token, second] + bias[slot, second], kv[token, second]))
            total = sum(torch.exp(g) for g, _ in slots)
            rows.append(sum(torch.exp(g) / total * value for g, value in slots))
    return torch.stack(rows) if rows else kv.new_zeros(0, d)


@pytest.mark.parametrize("kind", ["HCA", "CSA"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_equals_the_loop_in_value_and_gradient(layout: PackLayout, kind: str) -> None:
    overlaps = kind == "CSA"
    ratio = 4 if overlaps else 5
    fast = pool_overlapping_windows if overlaps else pool_windows
    inputs = [leaf(layout.total, 6, seed=seed) for seed in (0, 1)] + [leaf(ratio, 6, seed=2)]
    windows = windows_of(layout, ratio=ratio)
    found = fast(*inputs, windows=windows)
    expected = slow_pool(*inputs, layout=layout, ratio=ratio, overlaps=overlaps)
    assert relative_error(found, expected) < 1e-14
    weight = randn(*expected.shape, seed=3)
    grads = torch.autograd.grad((found * weight).sum(), inputs)
    if expected.requires_grad:
        for grad, slow in zip(grads, torch.autograd.grad((expected * weight).sum(), inputs), strict=True):
            assert relative_error(grad, slow) < 1e-13
    else:  # no window: an edge for every parameter all the same
        assert all(torch.equal(grad, torch.zeros_like(grad)) for grad in grads)


def test_first_window_gives_its_absent_predecessor_no_weight() -> None:
    layout = PackLayout.from_lengths([9, 8])
    kv, gate, bias = leaf(17, 4), leaf(17, 4, seed=1), leaf(4, 4, seed=2)
    # A gate of 0 in place of -inf would take most of the softmax: the present slots have gates near -50.
    low = gate - 50
    rows = pool_overlapping_windows(kv, low, bias, windows=windows_of(layout, ratio=4))
    weight = torch.softmax(low[9:13, 2:] + bias[:, 2:], dim=0)
    assert relative_error(rows[2], (weight * kv[9:13, 2:]).sum(0)) < 1e-14
    grads = torch.autograd.grad(rows[2].sum(), [kv, gate, bias])
    assert not grads[0][:9].any(), "nothing of the sample before"
    assert not grads[1][:9].any()
    assert not grads[0][:, :2].any(), "no first half at all"
    assert not grads[1][:, :2].any()
    assert not grads[2][:, :2].any(), "no bias of slots that are not there"


@pytest.mark.parametrize("kind", ["HCA", "CSA"])
def test_tokens_outside_all_windows_are_never_read(kind: str) -> None:
    layout = PackLayout.from_lengths([6, 9], slots=[8, 12])
    windows = windows_of(layout, ratio=4)
    fast = pool_overlapping_windows if kind == "CSA" else pool_windows
    outside = torch.ones(layout.total, dtype=torch.bool)
    outside[windows.slots()] = False
    results = []
    for poison in (0.0, NAN):
        kv, gate = (torch.where(outside[:, None], poison, randn(20, 4, seed=s)).requires_grad_() for s in (0, 1))
        bias = leaf(4, 4, seed=2)
        rows = fast(kv, gate, bias, windows=windows)
        results.append([rows, *torch.autograd.grad(rows.sum(), [kv, gate, bias])])
    for clean, poisoned in zip(*results, strict=True):
        assert torch.equal(clean, poisoned)
        assert poisoned.isfinite().all()


def test_rows_of_minus_one_are_zeros() -> None:
    x = randn(4, 3)
    rows = torch.tensor([[2, -1], [-1, 0]])
    found = gather_rows(x, rows)
    assert torch.equal(found, torch.stack([torch.stack([x[2], 0 * x[0]]), torch.stack([0 * x[0], x[0]])]))
    assert gather_rows(x[:0], torch.tensor([-1, -1])).tolist() == [[0.0] * 3] * 2


def test_nan_in_rows_nobody_asks_for_stays_there() -> None:
    x = randn(5, 3)
    x[[0, 1, 4]] = NAN
    x.requires_grad_()
    found = gather_rows(x, torch.tensor([2, -1, 3, 2, -1]))
    assert found.isfinite().all()
    (found * found).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert not x.grad[[0, 1, 4]].any()
    assert torch.equal(x.grad[2], 4 * x[2].detach())


def test_weights_are_made_in_float32() -> None:
    layout = PackLayout.single(8)
    windows = windows_of(layout, ratio=4)
    kv, gate = (randn(8, 6, seed=seed, dtype=torch.float32).bfloat16() for seed in (0, 1))
    bias = randn(4, 6, seed=2, dtype=torch.float32)
    found = pool_windows(kv, gate, bias, windows=windows)
    assert found.dtype == torch.bfloat16
    exact = pool_windows(kv.double(), gate.double(), bias.double(), windows=windows)
    # The result alone is rounded to bfloat16; a bias or a softmax in bfloat16 adds as much again or more.
    assert ((found.double() - exact).abs() <= BF16 * exact.abs() + 1e-6).all()
