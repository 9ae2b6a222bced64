"""The fast twins that go over rows once: norm, rotation, SwiGLU, cross entropy, streams, Sinkhorn."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from suites.v4model.ops.fast.twins import DEVICE, DTYPES, hold, plain
from suites.v4model.support import randn
from v4model.layers import hyper
from v4model.ops import ce, norm, rope, sinkhorn, swiglu

pytestmark = [
    pytest.mark.usefixtures("poisoned"),
    pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "narrow"]),
]


@pytest.mark.parametrize(("shape", "weighted"), [((37, 3, 24), True), ((9, 512), False), ((3, 5000), True)])
def test_norm(shape: tuple[int, ...], *, weighted: bool, dtype: torch.dtype) -> None:
    from v4model.ops.fast.norm import rms_norm

    inputs = [3 * randn(*shape), *([randn(shape[-1], seed=1)] if weighted else [])]

    def of(function: object) -> object:
        return lambda x, weight=None: function(x, eps=1e-6, weight=weight)  # type: ignore[operator]

    hold(of(plain(norm.rms_norm)), of(rms_norm), inputs, dtype=dtype, wide=(1,))  # type: ignore[arg-type]


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("shape", [(37, 3, 24), (11, 8), (5, 2, 3, 32)])
def test_rotation(shape: tuple[int, ...], *, inverse: bool, dtype: torch.dtype) -> None:
    from v4model.ops.fast.rope import rotate

    position = torch.arange(shape[0], device=DEVICE) * 1000
    frequencies = rope.inverse_frequencies(8, theta=1e4, yarn=None)
    tables = {of: rope.rotations(position, frequencies=frequencies, dtype=of) for of in (torch.float32, torch.float64)}

    def slow(x: Tensor) -> Tensor:
        table = tables[torch.float64 if x.dtype == torch.float64 else torch.float32]
        return plain(rope.rotate)(x, table, inverse=inverse)

    hold(slow, lambda x: rotate(x, tables[torch.float32], inverse=inverse), [randn(*shape)], dtype=dtype)


def test_swiglu_at_and_beyond_its_limits(dtype: torch.dtype) -> None:
    from v4model.ops.fast.swiglu import clamped_swiglu, clamped_swiglu_pair

    inputs = [randn(37, 3, 24), randn(37, 3, 24, seed=1)]
    inputs[0][0], inputs[1][0] = 1.0, -1.0
    slow = plain(swiglu.clamped_swiglu)
    hold(lambda *x: slow(*x, limit=1.0), lambda *x: clamped_swiglu(*x, limit=1.0), inputs, dtype=dtype)
    hold(
        lambda x: slow(*x.chunk(2, dim=1), limit=1.0),
        lambda x: clamped_swiglu_pair(x, limit=1.0),
        [randn(21, 2 * 700)],
        dtype=dtype,
    )


@pytest.mark.parametrize("chunk_tokens", [16, 64])
def test_cross_entropy(chunk_tokens: int, dtype: torch.dtype) -> None:
    from v4model.ops.fast.ce import linear_cross_entropy

    labels = torch.randint(-1, 300, (37,), generator=torch.Generator().manual_seed(0)).to(DEVICE)

    def of(function: object) -> object:
        return lambda *x: function(*x, labels=labels, chunk_tokens=chunk_tokens)  # type: ignore[operator]

    inputs = [randn(37, 32), randn(300, 32, seed=1)]
    hold(of(plain(ce.linear_cross_entropy)), of(linear_cross_entropy), inputs, dtype=dtype)  # type: ignore[arg-type]


@pytest.mark.parametrize(("streams", "width"), [(3, 48), (4, 2500)])
def test_streams(streams: int, width: int, dtype: torch.dtype) -> None:
    from v4model.ops.fast import streams as fast

    x, out = randn(7, streams, width), randn(7, width, seed=1)
    post, comb = randn(7, streams, seed=2), randn(7, streams, streams, seed=3)
    fn = randn((2 + streams) * streams, streams * width, seed=4)
    hold(plain(hyper.collapse), fast.collapse, [x, post], dtype=dtype, wide=(1,))
    hold(
        lambda x, out, post, comb: plain(hyper.expand)(x, out, post=post, comb=comb),
        lambda x, out, post, comb: fast.expand(x, out, post=post, comb=comb),
        [x, out, post, comb],
        dtype=dtype,
        wide=(2, 3),
    )
    hold(
        lambda x, fn: plain(hyper.normed_product)(x, fn, eps=1e-6),
        lambda x, fn: fast.normed_product(x, fn, eps=1e-6),
        [x, fn],
        dtype=dtype,
        wide=(1,),
    )


@pytest.mark.parametrize(("side", "iterations"), [(4, 20), (3, 3), (2, 1)])
def test_sinkhorn(side: int, iterations: int, dtype: torch.dtype) -> None:
    from v4model.ops.fast.sinkhorn import sinkhorn as fast

    if dtype != torch.float32:
        pytest.skip(reason="mHC's matrices are never narrower than float32")
    hold(
        lambda x: plain(sinkhorn.sinkhorn)(x.exp(), iterations=iterations, eps=1e-6),
        lambda x: fast(x.exp(), iterations=iterations, eps=1e-6),
        [randn(37, side, side)],
        dtype=dtype,
    )
