"""Fast pooling: ragged layouts, odd ratios, tokens and halves that no window reads, tables that point outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from suites.v4model.ops.fast.twins import DEVICE, DTYPES, NARROW, hold, plain
from suites.v4model.support import LAYOUTS, randn
from v4model.ops import pool
from v4model.pack import PackLayout
from v4model.pack.windows import Windows, windows_of

pytestmark = pytest.mark.usefixtures("poisoned")

KINDS = {"HCA": 5, "CSA": 4}
NAN = float("nan")


def twins(kind: str, windows: Windows) -> list[Callable[..., Tensor]]:
    """The plain function and the fast one of a table."""
    from v4model.ops.fast import pool as fast

    name = "pool_overlapping_windows" if kind == "CSA" else "pool_windows"
    found = (plain(getattr(pool, name)), getattr(fast, name))
    return [lambda *inputs, function=function: function(*inputs, windows=windows) for function in found]


def case(kind: str, layout: PackLayout, *, width: int, ratio: int | None = None) -> tuple[list[Tensor], Windows]:
    """kv, gate and bias in float64, and the table on the device."""
    windows = windows_of(layout, ratio=ratio or KINDS[kind]).to(DEVICE)
    columns = 2 * width if kind == "CSA" else width
    shapes = [(layout.total, columns), (layout.total, columns), (windows.ratio, columns)]
    return [randn(*shape, seed=seed) for seed, shape in enumerate(shapes)], windows


def results(function: Callable[..., Tensor], inputs: list[Tensor], dtype: torch.dtype = NARROW) -> list[Tensor]:
    """Rows and gradients."""
    dtypes = [dtype, dtype, torch.float32]
    leaves = [x.to(DEVICE, each).requires_grad_() for x, each in zip(inputs, dtypes, strict=True)]
    rows = function(*leaves)
    return [rows, *torch.autograd.grad(rows, leaves, randn(*rows.shape, seed=7).to(DEVICE, rows.dtype))]


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "narrow"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_equals_the_plain_twin_on_ragged_packs(layout: PackLayout, kind: str, dtype: torch.dtype) -> None:
    inputs, windows = case(kind, layout, width=24)
    slow, fast = twins(kind, windows)
    hold(slow, fast, inputs, dtype=dtype, wide=(2,))


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "narrow"])
@pytest.mark.parametrize(("kind", "ratio"), [("HCA", 128), ("HCA", 1), ("HCA", 200), ("CSA", 3)])
def test_other_ratios_and_more_than_one_block_of_channels(kind: str, ratio: int, dtype: torch.dtype) -> None:
    layout = PackLayout.from_lengths([5, 2 * ratio + 1, 3 * ratio], total=5 * ratio + 9)
    inputs, windows = case(kind, layout, width=40, ratio=ratio)
    slow, fast = twins(kind, windows)
    hold(slow, fast, inputs, dtype=dtype, wide=(2,))


@pytest.mark.parametrize("kind", KINDS)
def test_several_windows_a_program_of_the_backward_pass(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from v4model.ops.fast import pool as module

    monkeypatch.setattr(module, "_PROGRAMS", 3)
    inputs, windows = case(kind, LAYOUTS["ragged"], width=8)
    slow, fast = twins(kind, windows)
    for dtype in DTYPES:
        hold(slow, fast, inputs, dtype=dtype, wide=(2,))


@pytest.mark.parametrize("kind", KINDS)
def test_the_windows_of_one_rank_behind_a_halo(kind: str) -> None:
    # The rank's own windows, for tensors that begin inside the pack; the first one's predecessor lies in the halo.
    inputs, windows = case(kind, PackLayout.from_lengths([41, 9]), width=8)
    part = windows.part(range(3, 7)).starting_at(2 * windows.ratio)
    slow, fast = twins(kind, part)
    hold(
        slow, fast, [inputs[0][2 * windows.ratio :], inputs[1][2 * windows.ratio :], inputs[2]], dtype=NARROW, wide=(2,)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_before_the_first_are_as_in_the_plain_twin(kind: str) -> None:
    inputs, windows = case(kind, PackLayout.single(23), width=8)
    slow, fast = twins(kind, windows.starting_at(windows.ratio + 2))
    hold(slow, fast, inputs, dtype=NARROW, wide=(2,))


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_outside_all_windows_are_never_read(kind: str) -> None:
    inputs, windows = case(kind, LAYOUTS["slots"], width=8)
    _, fast = twins(kind, windows)
    outside = torch.ones(inputs[0].shape[0], dtype=torch.bool)
    outside[windows.slots().cpu()] = False
    # The last window of a sample is nobody's predecessor: its first halves are not read either.
    lonely = torch.ones_like(outside) if kind == "CSA" else torch.zeros_like(outside)
    before = windows.slots(back=1).cpu()
    lonely[before[before >= 0]] = False
    found = []
    for poison in (0.0, NAN):
        kv, gate = (torch.where(outside[:, None], poison, x) for x in inputs[:2])
        for x in (kv, gate):
            x[:, :8][lonely] = poison
        found.append(results(fast, [kv, gate, inputs[2]]))
    for clean, poisoned in zip(*found, strict=True):
        assert torch.equal(clean, poisoned)
        assert poisoned.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_behind_the_last_is_loud_and_stays_with_its_window(kind: str) -> None:
    inputs, windows = case(kind, PackLayout.single(40), width=8)
    _, fast = twins(kind, windows)
    first = windows.first_token.clone()
    first[2] += 40 - first[2] - 1  # its first token is the last of the pack, all others lie behind it
    healthy = results(fast, inputs)
    _, fast = twins(kind, replace(windows, first_token=first))
    rows, dkv, _, _ = results(fast, inputs)
    assert rows.isnan().any(1).nonzero().flatten().tolist() == [2]
    kept = torch.arange(windows.count) != 2
    assert torch.equal(rows[kept], healthy[0][kept])
    assert set(dkv.isnan().any(1).nonzero().flatten().tolist()) <= {int(first[2]), *range(int(first[2]) - 4, 40)}


@pytest.mark.parametrize("kind", KINDS)
def test_twice_gives_the_same_bits(kind: str) -> None:
    inputs, windows = case(kind, PackLayout.from_lengths([40, 13]), width=24)
    _, fast = twins(kind, windows)
    once, again = results(fast, inputs), results(fast, inputs)
    assert all(torch.equal(one, other) for one, other in zip(once, again, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_neighbour_changes_no_bit(kind: str) -> None:
    layout = PackLayout.from_lengths([31, 22])
    inputs, windows = case(kind, layout, width=8)
    own = windows.sample.cpu() == 0
    _, fast = twins(kind, windows)
    found = []
    for scale in (1.0, -3.0):
        kv, gate = (torch.cat([x[:31], scale * x[31:]]) for x in inputs[:2])
        rows, dkv, dgate, _ = results(fast, [kv, gate, inputs[2]])
        found.append((rows[own], dkv[:31], dgate[:31]))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_the_choice_falls_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from v4model.ops import twins as choice

    monkeypatch.setattr(choice, "runs_fast", lambda _: True)
    inputs, windows = case("HCA", LAYOUTS["ragged"], width=8)
    narrow = [x.to(DEVICE, torch.float32) for x in inputs]
    _, fast = twins("HCA", windows)
    assert torch.equal(pool.pool_windows(*narrow, windows=windows), fast(*narrow))


ON_A_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs 20 GiB of a GPU: more than 2^31 elements")


def at_the_end(tokens: int, *, count: int) -> Windows:
    """`count` windows of 4, the last tokens of a pack of which nothing else is in a window."""
    index = torch.arange(count, device=DEVICE)
    return Windows(4, tokens - 4 * (count - index), index, torch.zeros_like(index))


@ON_A_GPU
@pytest.mark.parametrize("kind", KINDS)
def test_more_than_two_to_the_31_elements_of_tokens(kind: str) -> None:
    columns, used = 1024, 64
    tokens = 2**31 // columns + 512
    kv, gate = (torch.empty(tokens, columns, dtype=NARROW, device=DEVICE) for _ in range(2))
    ends = [randn(used, columns, seed=seed).to(DEVICE, NARROW) for seed in (0, 1)]
    kv[-used:], gate[-used:] = ends
    bias = randn(4, columns, seed=2).to(DEVICE, torch.float32)
    windows = at_the_end(tokens, count=used // 4)
    _, fast = twins(kind, windows)
    _, small = twins(kind, windows.starting_at(tokens - used))
    found, expected = results_of(fast, [kv, gate, bias]), results_of(small, [*ends, bias])
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[3], expected[3])
    for large, part in zip(found[1:3], expected[1:3], strict=True):
        assert torch.equal(large[-used:], part)
        assert not int(torch.count_nonzero(large[:-used]))


def results_of(function: Callable[..., Tensor], inputs: list[Any]) -> list[Tensor]:
    """Rows and gradients, of inputs as they are."""
    leaves = [x.requires_grad_() for x in inputs]
    rows = function(*leaves)
    return [rows, *torch.autograd.grad(rows, leaves, torch.ones_like(rows))]


@ON_A_GPU
@pytest.mark.parametrize("kind", KINDS)
def test_more_than_two_to_the_31_elements_of_rows(kind: str) -> None:
    # All windows but the last one read the same tokens.
    width, count = 512, 2**31 // 512 + 8
    inputs, _ = case(kind, PackLayout.single(16), width=width, ratio=4)
    narrow = [x.to(DEVICE, torch.float32 if place == 2 else NARROW) for place, x in enumerate(inputs)]
    index = torch.ones(count, dtype=torch.int64, device=DEVICE)
    first = torch.full_like(index, 4)
    first[-1] = 12
    with torch.no_grad():
        rows = twins(kind, Windows(4, first, index, torch.zeros_like(index)))[1](*narrow)
        some = twins(kind, Windows(4, first[-2:], index[-2:], index[-2:]))[1](*narrow)
    assert torch.equal(rows[-2:], some)
    assert torch.equal(rows[0], some[0])
