"""Compressor: pooled, normed, rotated to the window's first position; no sample touches another's rows."""

from __future__ import annotations

import pytest
import torch

from suites.v4model.support import leaf, randn, random_pack, relative_error
from v4model import presets
from v4model.exchange import Ranks
from v4model.layers.compressor import Compressor
from v4model.layers.context import PackContext, context_of
from v4model.ops.norm import rms_norm
from v4model.ops.pool import pool_overlapping_windows, pool_windows
from v4model.ops.rope import inverse_frequencies, rotate, rotations
from v4model.pack import PackLayout

CONFIG = presets.tiny()
D, WIDTH = CONFIG.hidden_size, CONFIG.head_dim
RATIOS = pytest.mark.parametrize("ratio", [4, 16])


def context(layout: PackLayout) -> PackContext:
    pack = random_pack(layout)
    return context_of(pack, config=CONFIG, ranks=Ranks.one(), dtype=torch.float64, device=torch.device("cpu"))


def compressor(*, ratio: int) -> Compressor:
    made = Compressor(CONFIG, ratio=ratio, width=WIDTH, dtype=torch.float64)
    with torch.no_grad():
        for seed, parameter in enumerate(made.parameters()):
            parameter.copy_(randn(*parameter.shape, seed=seed))
    return made


@RATIOS
def test_only_ratio_4_overlaps(ratio: int) -> None:
    projected = 2 * WIDTH if ratio == 4 else WIDTH
    shapes = {name: tuple(p.shape) for name, p in compressor(ratio=ratio).named_parameters()}
    assert shapes == {
        "kv_proj.weight": (projected, D),
        "gate_proj.weight": (projected, D),
        "position_bias": (ratio, projected),
        "kv_norm.weight": (WIDTH,),
    }


@RATIOS
def test_rows_are_normed_then_rotated_to_index_times_ratio(ratio: int) -> None:
    layout = PackLayout.from_lengths([35, 5, 49])
    made, x = compressor(ratio=ratio), randn(layout.total, D, seed=9)
    inputs = context(layout)
    windows = inputs.visibility.pools[ratio].windows
    pool = pool_overlapping_windows if ratio == 4 else pool_windows
    pooled = pool(x @ made.kv_proj.weight.T, x @ made.gate_proj.weight.T, made.position_bias, windows=windows)
    normed = rms_norm(pooled, eps=CONFIG.rms_norm_eps, weight=made.kv_norm.weight)
    at = torch.tensor([w * ratio for length in layout.lengths for w in range(length // ratio)])
    # The compressed layers' theta and YaRN, not the dense layers'.
    frequencies = inverse_frequencies(8, theta=CONFIG.compress_rope_theta, yarn=CONFIG.rope_scaling)
    expected = rotate(normed, rotations(at, frequencies=frequencies, dtype=torch.float64))
    assert relative_error(made(x, context=inputs, where="here"), expected) < 1e-14


@RATIOS
def test_rows_of_a_sample_are_those_of_it_alone(ratio: int) -> None:
    lengths = [35, 5, 49]
    layout = PackLayout.from_lengths(lengths, slots=[38, 5, 51])
    made, x = compressor(ratio=ratio), leaf(layout.total, D, seed=9)
    rows = made(x, context=context(layout), where="here")
    row = 0
    for start, length in zip(layout.starts, lengths, strict=True):
        alone = made(x[start : start + length], context=context(PackLayout.single(length)), where="here")
        own = rows[row : row + length // ratio]
        row += length // ratio
        assert relative_error(own, alone) < 1e-14
        if own.numel():
            grad = torch.autograd.grad(own.sum(), x, retain_graph=True)[0]
            grad[start : start + length // ratio * ratio] = 0
            assert not grad.any(), "no neighbour, no padding, no incomplete window"
    assert row == rows.shape[0]


@RATIOS
def test_no_complete_window_keeps_a_gradient_edge(ratio: int) -> None:
    made, layout = compressor(ratio=ratio), PackLayout.from_lengths([3, 2])
    rows = made(randn(5, D), context=context(layout), where="here")
    assert rows.shape == (0, WIDTH)
    grads = torch.autograd.grad(rows.sum(), list(made.parameters()))
    assert not any(grad.any() for grad in grads)
