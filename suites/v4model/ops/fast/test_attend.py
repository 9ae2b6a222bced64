"""Fast attention: every kind of layer, ragged layouts, parts of packs, heads above one block, picks out of range."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from suites.v4model.ops.fast.twins import ALLOWED, DEVICE, DTYPES, FLOOR, NARROW, error, plain
from suites.v4model.ops.test_attend import some_picks
from suites.v4model.support import LAYOUTS, randn
from v4model.ops.attend import attend
from v4model.pack import PackLayout, visibility_of

pytestmark = pytest.mark.usefixtures("poisoned")

ON_HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9

KINDS = {"dense": 0, "hca": 16, "csa": 4}


def case(
    kind: str, layout: PackLayout, *, heads: int, width: int, window: int, topk: int
) -> tuple[list[Tensor], dict[str, Any]]:
    """Inputs in float64 and the other arguments."""
    visibility = visibility_of(layout, window=window, ratios=(4, 16), device=DEVICE)
    ratio = KINDS[kind]
    windows = visibility.pools[ratio].windows.count if ratio else 0
    picks = some_picks(layout, ratio=ratio, topk=topk).to(DEVICE) if kind == "csa" else None
    shapes = [(layout.total, heads, width), (layout.total, width), (windows, width), (heads,)]
    inputs = [randn(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    return inputs, {"visibility": visibility, "ratio": ratio, "picks": picks, "first_key": 0, "block_tokens": 64}


def hold(inputs: list[Tensor], arguments: dict[str, Any], *, dtype: torch.dtype) -> None:
    """As `twins.hold`, for a function with two results; sinks stay in float32."""
    from v4model.ops.fast.attend import attend as fast

    rounded = [x.to(dtype if place < 3 else torch.float32).double() for place, x in enumerate(inputs)]
    weight = randn(*inputs[0].shape, seed=9).to(dtype)

    def run(function: Any, of: torch.dtype) -> list[Tensor]:
        dtypes = [of] * 3 + [torch.promote_types(of, torch.float32)]
        leaves = [x.to(DEVICE, each).requires_grad_() for x, each in zip(rounded, dtypes, strict=True)]
        out, mass = function(*leaves, **arguments)
        grads = torch.autograd.grad(out, leaves, weight.to(DEVICE, out.dtype), allow_unused=True)
        return [out, mass, *(torch.zeros(1) if grad is None or not grad.numel() else grad for grad in grads)]

    names = ("out", "mass", "dq", "dkv", "dpool", "dsinks")
    results = (run(plain(attend), torch.float64), run(plain(attend), dtype), run(fast, dtype))
    for name, exact, slower, faster in zip(names, *results, strict=True):
        assert faster.shape == slower.shape, name
        bound = ALLOWED * error(slower, exact) + FLOOR
        assert error(faster, exact) <= bound, (name, error(faster, exact), bound)


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "narrow"])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_plain_twin_on_a_ragged_pack(kind: str, dtype: torch.dtype) -> None:
    inputs, arguments = case(kind, LAYOUTS["slots"], heads=8, width=24, window=8, topk=3)
    hold(inputs, arguments, dtype=dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_more_heads_than_a_block_and_a_window_that_fills_no_tile(kind: str) -> None:
    inputs, arguments = case(kind, PackLayout.from_lengths([50]), heads=80, width=32, window=20, topk=8)
    hold(inputs, arguments, dtype=NARROW)


@pytest.mark.parametrize("kind", KINDS)
def test_queries_of_a_part_of_the_pack(kind: str) -> None:
    inputs, arguments = case(kind, LAYOUTS["slots"], heads=16, width=32, window=8, topk=3)
    start, end, first = 20, 47, 12
    arguments |= {"visibility": arguments["visibility"].part(start, end), "first_key": first}
    if arguments["picks"] is not None:
        arguments["picks"] = arguments["picks"][start:end]
    hold([inputs[0][start:end], inputs[1][first:end], *inputs[2:]], arguments, dtype=NARROW)


@pytest.mark.skipif(not ON_HOPPER, reason="kernels in Gluon are compiled for Hopper and have no interpreter")
@pytest.mark.parametrize("heads", [64, 128])
@pytest.mark.parametrize("kind", KINDS)
def test_the_kernels_written_for_hopper(kind: str, heads: int) -> None:
    # Samples that end inside a tile, padding between and behind them, fewer picks than places.
    layout = PackLayout.from_lengths([700, 1, 300, 83], slots=[704, 4, 300, 90], total=1200)
    inputs, arguments = case(kind, layout, heads=heads, width=512, window=128, topk=96)
    hold(inputs, arguments, dtype=NARROW)


def test_many_blocks_of_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    from v4model.ops.fast import attend as module

    monkeypatch.setattr(module, "BACKWARD_TOKENS", 20)
    for kind in KINDS:
        inputs, arguments = case(kind, LAYOUTS["slots"], heads=16, width=16, window=8, topk=3)
        hold(inputs, arguments, dtype=NARROW)


@pytest.mark.parametrize("layout", ["no window", "padding only"])
def test_nothing_to_see_is_zero(layout: str) -> None:
    inputs, arguments = case("csa", LAYOUTS[layout], heads=16, width=16, window=8, topk=3)
    hold(inputs, arguments, dtype=NARROW)


def test_a_pick_outside_the_pool_is_loud_and_stays_with_its_query() -> None:
    from v4model.ops.fast.attend import attend as fast

    inputs, arguments = case("csa", PackLayout.from_lengths([40]), heads=16, width=16, window=8, topk=3)
    arguments["picks"][17, 0] = inputs[2].shape[0]
    out, _ = fast(
        *(x.to(DEVICE, NARROW if place < 3 else torch.float32) for place, x in enumerate(inputs)), **arguments
    )
    assert out.isnan().flatten(1).any(1).nonzero().flatten().tolist() == [17]


def test_a_neighbour_changes_no_bit() -> None:
    # The second sample's values are others; the first one's results and gradients keep every bit.
    from v4model.ops.fast.attend import attend as fast

    inputs, arguments = case("csa", PackLayout.from_lengths([30, 17]), heads=16, width=16, window=8, topk=3)
    found = []
    for scale in (1.0, -3.0):
        leaves = [x.to(DEVICE, NARROW if place < 3 else torch.float32) for place, x in enumerate(inputs)]
        leaves[0][30:] *= scale
        leaves[1][30:] *= scale
        leaves[2][30 // 4 :] *= scale
        leaves = [x.requires_grad_() for x in leaves]
        out, _ = fast(*leaves, **arguments)
        grads = torch.autograd.grad((out.float() ** 2).sum(), leaves[:3])
        found.append((out[:30], grads[0][:30], grads[1][:30], grads[2][: 30 // 4]))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs 30 GB, which a GPU has")
@pytest.mark.parametrize("kind", KINDS)
def test_more_than_two_to_the_31_elements(kind: str) -> None:
    # The last queries of a long pack against the plain twin on these queries alone.
    from v4model.ops.fast.attend import attend as fast

    layout, heads, width, last = PackLayout.from_lengths([33_000, 33_100]), 64, 512, 32
    total, ratio = layout.total, KINDS[kind]
    assert total * heads * width > 2**31
    visibility = visibility_of(layout, window=128, ratios=(4, 16), device=DEVICE)
    pool = visibility.pools[ratio] if ratio else None
    picks = None
    if kind == "csa" and pool is not None:
        drawn = torch.rand(total, 64, device=DEVICE) * pool.visible[:, None]
        picks = torch.where(pool.visible[:, None] > 0, pool.base[:, None] + drawn.long(), -1)
    rows = pool.windows.count if pool is not None else 0
    q, kv, pooled, dout = (
        torch.randn(*shape, device=DEVICE, dtype=NARROW)
        for shape in ((total, heads, width), (total, width), (rows, width), (total, heads, width))
    )
    dout[:-last] = 0
    sinks = torch.randn(heads, device=DEVICE)
    found = []
    for function, part in ((fast, slice(0, total)), (plain(attend), slice(total - last, total))):
        leaves = [q[part].detach().requires_grad_(), kv.detach().requires_grad_()]
        out, _ = function(
            *leaves, pooled, sinks, visibility=visibility.part(part.start, part.stop), ratio=ratio,
            picks=None if picks is None else picks[part], first_key=0, block_tokens=8, wants_mass=False,
        )  # fmt: skip
        dq, dkv = torch.autograd.grad(out, leaves, dout[part])
        found.append((out[-last:].detach(), dq[-last:], dkv[-128 - last :], dkv[: -128 - last]))
    for name, got, expected in zip(("out", "dq", "dkv"), found[0], found[1], strict=False):
        # Both round a sum of hundreds of products to the dtype: some of its units in the last place.
        assert error(got, expected) <= 8 * torch.finfo(NARROW).eps, (name, error(got, expected))
    assert not found[0][3].any()
