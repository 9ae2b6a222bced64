"""Attention over picks against a dense softmax under a mask made one pair at a time."""

from __future__ import annotations

import pytest
import torch

from suites.v4model.support import BF16, LAYOUTS, leaf, randn, relative_error, sees_token, sees_window
from v4model.ops.attend import attend
from v4model.pack import PackLayout, visibility_of

WINDOW, HEADS, WIDTH = 8, 3, 6


def some_picks(layout: PackLayout, *, ratio: int, topk: int) -> torch.Tensor:
    """[T, topk] visible windows in random order, -1 behind the last."""
    picks = torch.full((layout.total, topk), -1)
    generator = torch.Generator().manual_seed(5)
    for token, seen in enumerate(sees_window(layout, ratio=ratio)):
        rows = seen.nonzero()[:, 0]
        rows = rows[torch.randperm(len(rows), generator=generator)][:topk]
        picks[token, : len(rows)] = rows
    return picks


def dense(
    inputs: list[torch.Tensor], *, layout: PackLayout, ratio: int, picks: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output [T, H, d] and the probability of every pooled row [T, W] summed over heads, with no tables at all."""
    q, kv, pool, sinks = inputs
    seen = sees_token(layout, window=WINDOW)
    if ratio:
        pooled = sees_window(layout, ratio=ratio)
        if picks is not None:
            chosen = torch.zeros_like(pooled)
            for token, rows in enumerate(picks.tolist()):
                chosen[token, [row for row in rows if row >= 0]] = True
            pooled = pooled & chosen
        seen = torch.cat([seen, pooled], dim=1)
    keys = torch.cat([kv, pool])
    weight = torch.exp(torch.einsum("thd,nd->thn", q, keys) / q.shape[-1] ** 0.5) * seen[:, None, :]
    probability = weight / (weight.sum(-1, keepdim=True) + torch.exp(sinks)[None, :, None])
    return torch.einsum("thn,nd->thd", probability, keys), probability[:, :, layout.total :].sum(1)


@pytest.mark.parametrize("kind", ["dense", "hca", "csa"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_equals_a_dense_softmax_in_value_and_gradient(layout: PackLayout, kind: str) -> None:
    ratio = {"dense": 0, "hca": 5, "csa": 4}[kind]
    visibility = visibility_of(layout, window=WINDOW, ratios=(4, 5))
    windows = visibility.pools[ratio].windows.count if ratio else 0
    picks = some_picks(layout, ratio=ratio, topk=2) if kind == "csa" else None
    shapes = [(layout.total, HEADS, WIDTH), (layout.total, WIDTH), (windows, WIDTH), (HEADS,)]
    inputs = [leaf(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    out, mass = attend(*inputs, visibility=visibility, ratio=ratio, picks=picks, first_key=0, block_tokens=7)
    expected, expected_mass = dense(inputs, layout=layout, ratio=ratio, picks=picks)
    assert relative_error(out, expected, floor=1e-3) < 1e-13
    weight = randn(*expected.shape, seed=9)
    found_grads = torch.autograd.grad((out * weight).sum(), inputs)
    for grad, slow in zip(found_grads, torch.autograd.grad((expected * weight).sum(), inputs), strict=True):
        assert relative_error(grad, slow, floor=1e-3) < 1e-12
    assert not mass.requires_grad
    assert mass.shape == (layout.total, 0 if picks is None else picks.shape[1])
    if windows:
        if picks is None:  # the same rows told one by one, with their mass
            picks = visibility.pools[ratio].rows(0, layout.total)
            told, mass = attend(*inputs, visibility=visibility, ratio=ratio, picks=picks, first_key=0, block_tokens=7)
            assert relative_error(told, expected, floor=1e-3) < 1e-13
        rows = picks
        by_row = torch.zeros_like(expected_mass).scatter_add(1, rows.clamp_min(0), torch.where(rows >= 0, mass, 0))
        assert relative_error(by_row, expected_mass, floor=1e-3) < 1e-13


@pytest.mark.parametrize("block_tokens", [1, 3, 46, 47, 1000])
@pytest.mark.parametrize("ratio", [0, 4])
def test_block_size_changes_nothing(ratio: int, block_tokens: int) -> None:
    layout = LAYOUTS["slots"]
    visibility = visibility_of(layout, window=WINDOW, ratios=(4,))
    windows = visibility.pools[4].windows.count if ratio else 0
    all_rows = visibility.pools[4].rows(0, 47) if ratio else None
    inputs = (randn(47, HEADS, WIDTH), randn(47, WIDTH, seed=1), randn(windows, WIDTH, seed=2), randn(HEADS, seed=3))
    for picks in (None, all_rows):
        results = [
            attend(*inputs, visibility=visibility, ratio=ratio, picks=picks, first_key=0, block_tokens=size)
            for size in (47, block_tokens)
        ]
        for whole, blocks in zip(*results, strict=True):
            assert relative_error(blocks, whole) < 1e-14


@pytest.mark.parametrize(("start", "end", "first"), [(0, 47, 0), (10, 11, 3), (20, 47, 13), (33, 40, 5), (44, 47, 37)])
@pytest.mark.parametrize("ratio", [0, 4])
def test_queries_of_a_part_of_the_pack_read_the_keys_at_hand(ratio: int, start: int, end: int, first: int) -> None:
    visibility = visibility_of(LAYOUTS["slots"], window=WINDOW, ratios=(4,))
    windows = visibility.pools[4].windows.count if ratio else 0
    q, kv = leaf(47, HEADS, WIDTH), leaf(47, WIDTH, seed=1)
    others = leaf(windows, WIDTH, seed=2), leaf(HEADS, seed=3)
    whole, _ = attend(q, kv, *others, visibility=visibility, ratio=ratio, picks=None, first_key=0, block_tokens=47)
    part, _ = attend(
        q[start:end], kv[first:end], *others,
        visibility=visibility.part(start, end), ratio=ratio, picks=None, first_key=first, block_tokens=4,
    )  # fmt: skip
    assert relative_error(part, whole[start:end], floor=1e-3) < 1e-14
    weight = randn(end - start, HEADS, WIDTH, seed=9)
    grads = torch.autograd.grad((part * weight).sum(), [q, kv, *others])
    expected = torch.autograd.grad((whole[start:end] * weight).sum(), [q, kv, *others])
    for grad, of_whole in zip(grads, expected, strict=True):
        assert relative_error(grad, of_whole, floor=1e-3) < 1e-13


def test_queries_that_see_nothing_give_zero() -> None:
    layout = LAYOUTS["slots"]
    visibility = visibility_of(layout, window=WINDOW, ratios=(4,))
    inputs = [leaf(47, HEADS, WIDTH), leaf(47, WIDTH, seed=1), leaf(6, WIDTH, seed=2), leaf(HEADS, seed=3)]
    with torch.no_grad():
        for x in inputs[:2]:
            x[~layout.real] = 1e6  # padding holds whatever it likes
    out, _ = attend(*inputs, visibility=visibility, ratio=4, picks=None, first_key=0, block_tokens=10)
    assert not out[~layout.real].any()
    grads = torch.autograd.grad(out[~layout.real].sum(), inputs, retain_graph=True)
    assert not any(grad.any() for grad in grads)
    grads = torch.autograd.grad(out.square().sum(), inputs)
    assert not grads[0][~layout.real].any()
    assert not grads[1][~layout.real].any(), "and nothing sees it"


def test_nan_in_rows_a_query_does_not_see_stays_there() -> None:
    layout = PackLayout.from_lengths([9, 12])
    visibility = visibility_of(layout, window=WINDOW, ratios=(4,))
    inputs = [randn(21, HEADS, WIDTH), randn(21, WIDTH, seed=1), randn(5, WIDTH, seed=2), randn(HEADS, seed=3)]
    for x, rows in zip(inputs[:3], (9, 9, 2), strict=True):
        x[:rows] = float("nan")  # the whole first sample: its queries, its latents, its two windows
        x.requires_grad_()
    out, _ = attend(*inputs, visibility=visibility, ratio=4, picks=None, first_key=0, block_tokens=21)
    assert out[9:].isfinite().all()
    grads = torch.autograd.grad(out[9:].sum(), inputs[1:3])
    for grad, rows in zip(grads, (9, 2), strict=True):
        assert grad[rows:].isfinite().all()


def test_softmax_and_sink_are_float32_in_a_bfloat16_model() -> None:
    layout = PackLayout.single(20)
    visibility = visibility_of(layout, window=WINDOW, ratios=(4,))
    inputs = [randn(20, HEADS, WIDTH), randn(20, WIDTH, seed=1), randn(5, WIDTH, seed=2)]
    low = [x.bfloat16() for x in inputs]
    sinks = randn(HEADS, seed=3, dtype=torch.float32)
    picks = visibility.pools[4].rows(0, 20)
    out, mass = attend(*low, sinks, visibility=visibility, ratio=4, picks=picks, first_key=0, block_tokens=20)
    assert (out.dtype, mass.dtype) == (torch.bfloat16, torch.float32)
    exact, _ = attend(
        *(x.double() for x in low), sinks.double(),
        visibility=visibility, ratio=4, picks=None, first_key=0, block_tokens=9,
    )  # fmt: skip
    # Dot products are rounded once (of at most 10, times d^-0.5), probabilities and outputs once more each.
    assert relative_error(out.double(), exact) < 2 * (10 * WIDTH**-0.5 + 2) * BF16
