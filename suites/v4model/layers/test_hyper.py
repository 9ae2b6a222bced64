"""mHC and HyperHead against loops over streams."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from suites.v4model.support import leaf, randn, relative_error
from v4model import presets
from v4model.layers.hyper import HyperConnection, HyperHead, collapse, expand

K, D, T, EPS = 3, 5, 4, 0.01  # an eps large enough to show where it is added
CONFIG = replace(presets.tiny(), hc_mult=K, hidden_size=D, hc_eps=EPS, hc_sinkhorn_iters=4, rms_norm_eps=0.1)
ROWS = (2 + K) * K


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def connection() -> HyperConnection:
    made = HyperConnection(CONFIG, dtype=torch.float64)
    with torch.no_grad():
        made.fn.copy_(randn(ROWS, K * D, seed=1))
        made.base.copy_(randn(ROWS, seed=2))
        made.scale.copy_(torch.tensor([0.7, -1.3, 0.4]))
    return made


def coefficients(made: HyperConnection, streams: torch.Tensor) -> tuple[list[float], list[float], list[list[float]]]:
    """pre, post and comb of one token [K, D], from the specification."""
    x = [float(streams[k, d]) for k in range(K) for d in range(D)]  # stream-major
    norm = math.sqrt(sum(value**2 for value in x) / len(x) + CONFIG.rms_norm_eps)
    y = [sum(float(w) * value / norm for w, value in zip(row, x, strict=True)) for row in made.fn.detach()]
    scale, base = made.scale.tolist(), made.base.tolist()
    raw = [scale[0 if i < K else 1 if i < 2 * K else 2] * y[i] + base[i] for i in range(ROWS)]
    pre = [sigmoid(raw[k]) + EPS for k in range(K)]
    post = [2 * sigmoid(raw[K + k]) for k in range(K)]
    comb = []
    for i in range(K):
        row = [math.exp(raw[2 * K + i * K + j]) for j in range(K)]
        comb.append([value / sum(row) + EPS for value in row])
    for half in range(2 * CONFIG.hc_sinkhorn_iters - 1):
        if half % 2 == 0:
            sums = [sum(comb[i][j] for i in range(K)) + EPS for j in range(K)]
            comb = [[comb[i][j] / sums[j] for j in range(K)] for i in range(K)]
        else:
            comb = [[value / (sum(row) + EPS) for value in row] for row in comb]
    return pre, post, comb


def test_coefficients_equal_the_loop() -> None:
    made, streams = connection(), randn(T, K, D)
    collapsed, post, comb = made(streams)
    for t in range(T):
        slow_pre, slow_post, slow_comb = coefficients(made, streams[t])
        expected = sum(slow_pre[k] * streams[t, k] for k in range(K))
        torch.testing.assert_close(collapsed[t], expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(post[t], torch.tensor(slow_post, dtype=torch.float64), rtol=1e-12, atol=0)
        torch.testing.assert_close(comb[t], torch.tensor(slow_comb, dtype=torch.float64), rtol=1e-12, atol=0)


def test_expand_sums_comb_over_its_first_axis() -> None:
    streams, out, post, comb = randn(T, K, D), randn(T, D, seed=1), randn(T, K, seed=2), randn(T, K, K, seed=3)
    found = expand(streams, out, post=post, comb=comb)
    for t in range(T):
        for k in range(K):
            expected = post[t, k] * out[t] + sum(comb[t, j, k] * streams[t, j] for j in range(K))
            torch.testing.assert_close(found[t, k], expected, rtol=1e-12, atol=1e-14)


def test_comb_is_used_transposed() -> None:
    streams = torch.tensor([[[2.0], [10.0]]])
    comb = torch.tensor([[[0.0, 3.0], [0.0, 0.0]]])  # comb[0, 1]: from stream 0 into stream 1
    mixed = expand(streams, torch.zeros(1, 1), post=torch.zeros(1, 2), comb=comb)
    assert mixed.tolist() == [[[0.0], [6.0]]]


def test_head_has_no_sinkhorn() -> None:
    head, streams = HyperHead(CONFIG, dtype=torch.float64), randn(T, K, D)
    with torch.no_grad():
        head.hc_fn.copy_(randn(K, K * D, seed=1))
        head.hc_base.copy_(randn(K, seed=2))
        head.hc_scale.fill_(0.6)
    found = head(streams)
    for t in range(T):
        x = streams[t].flatten()
        y = head.hc_fn.detach() @ (x / math.sqrt(float(x.square().mean()) + CONFIG.rms_norm_eps))
        weights = [sigmoid(0.6 * float(y[k]) + float(head.hc_base[k].detach())) + EPS for k in range(K)]
        expected = sum(weights[k] * streams[t, k] for k in range(K))
        torch.testing.assert_close(found[t].detach(), expected, rtol=1e-12, atol=1e-14)


def test_gradients() -> None:
    made, streams = connection(), leaf(2, K, D)

    def through(x: torch.Tensor, fn: torch.Tensor) -> torch.Tensor:
        collapsed, post, comb = torch.func.functional_call(made, {"fn": fn}, (x,))
        return expand(x, collapsed, post=post, comb=comb)

    torch.autograd.gradcheck(through, (streams, made.fn))


def test_mixing_is_float32_in_a_bfloat16_model() -> None:
    made = HyperConnection(CONFIG, dtype=torch.bfloat16)
    assert {p.dtype for p in made.parameters()} == {torch.float32}
    exact = connection()
    made.load_state_dict(exact.state_dict())
    streams = randn(T, K, D).bfloat16()
    collapsed, post, comb = made(streams)
    assert (collapsed.dtype, post.dtype, comb.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    _, exact_post, exact_comb = exact(streams.double())
    assert relative_error(post.double(), exact_post) < 1e-5
    assert relative_error(comb.double(), exact_comb) < 1e-5
    assert collapse(streams, post).dtype == torch.bfloat16
