"""Fast scores of picked rows: ragged layouts, picks with gaps, rows nobody reads, rows that are not there."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from suites.v4model.ops.fast.twins import DEVICE, DTYPES, NARROW, hold, plain
from suites.v4model.ops.test_attend import some_picks
from suites.v4model.support import LAYOUTS, randn
from v4model.ops import pick
from v4model.pack import PackLayout
from v4model.pack.windows import windows_of

pytestmark = pytest.mark.usefixtures("poisoned")

NAN = float("nan")


def case(layout: PackLayout, *, heads: int, width: int, topk: int) -> tuple[list[Tensor], Tensor]:
    """q, gate and keys in float64, and picks."""
    windows = windows_of(layout, ratio=4).count
    shapes = [(layout.total, heads, width), (layout.total, heads), (windows, width)]
    inputs = [randn(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    return inputs, some_picks(layout, ratio=4, topk=topk).to(DEVICE)


def hold_scores(inputs: list[Tensor], rows: Tensor, *, dtype: torch.dtype) -> None:
    """As `twins.hold`, with the gate in float32 as the model has it; the places without a row are compared apart."""
    from v4model.ops.fast.index_scores import index_scores as fast

    slow = plain(pick.index_scores)

    def of(function: object) -> object:
        return lambda q, gate, keys: torch.where(rows >= 0, function(q, gate, keys, rows=rows), 0)  # type: ignore[operator]

    hold(of(slow), of(fast), inputs, dtype=dtype, wide=(1,))  # type: ignore[arg-type]
    found = fast(*(x.to(DEVICE, dtype) for x in inputs), rows=rows)
    assert found.dtype == torch.float32
    assert (found[rows < 0] == float("-inf")).all()


def results(inputs: list[Tensor], rows: Tensor, dtype: torch.dtype = NARROW) -> list[Tensor]:
    """Scores (0 where there is no row) and gradients."""
    from v4model.ops.fast.index_scores import index_scores as fast

    leaves = [x.to(DEVICE, dtype).requires_grad_() for x in inputs]
    scores = fast(*leaves, rows=rows)
    # What comes back for a place without a row is not to be read: NaN here.
    dscores = torch.where(rows >= 0, randn(*rows.shape, seed=7).to(DEVICE, torch.float32), NAN)
    return [torch.where(rows >= 0, scores.detach(), 0), *torch.autograd.grad(scores, leaves, dscores)]


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "narrow"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_equals_the_plain_twin_on_ragged_packs(layout: PackLayout, dtype: torch.dtype) -> None:
    hold_scores(*case(layout, heads=3, width=24, topk=5), dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "narrow"])
def test_many_heads_and_more_places_than_a_block(dtype: torch.dtype) -> None:
    # A row may stand at several places of a token.
    inputs, rows = case(PackLayout.from_lengths([9, 30], total=42), heads=40, width=32, topk=7)
    hold_scores(inputs, rows.repeat(1, 11), dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "narrow"])
def test_places_without_a_row_may_lie_between_others(dtype: torch.dtype) -> None:
    inputs, rows = case(PackLayout.single(41), heads=3, width=16, topk=8)
    rows[:, ::3] = -1
    hold_scores(inputs, rows, dtype=dtype)


def test_tokens_in_several_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    from v4model.ops.fast import index_scores as module

    monkeypatch.setattr(module, "BACKWARD_TOKENS", 20)
    hold_scores(*case(LAYOUTS["slots"], heads=4, width=16, topk=5), dtype=NARROW)


def test_no_places_at_all() -> None:
    inputs, rows = case(PackLayout.single(9), heads=3, width=16, topk=4)
    scores, *grads = results(inputs, rows[:, :0])
    assert scores.shape == (9, 0)
    assert not any(grad.any() for grad in grads)


def test_keys_nobody_picks_are_never_read() -> None:
    inputs, rows = case(LAYOUTS["ragged"], heads=3, width=16, topk=5)
    rows = torch.where(rows % 3 == 1, -1, rows)
    found = []
    for poison in (0.0, NAN):
        keys = inputs[2].clone()
        keys[1::3] = poison
        found.append(results([*inputs[:2], keys], rows))
    for clean, poisoned in zip(*found, strict=True):
        assert torch.equal(clean, poisoned)
        assert poisoned.isfinite().all()


def test_a_row_behind_the_last_is_loud_and_stays_with_its_place() -> None:
    inputs, rows = case(PackLayout.single(40), heads=3, width=16, topk=5)
    healthy = results(inputs, rows)
    rows = rows.clone()
    rows[17, 2] = inputs[2].shape[0]
    scores, dq, dgate, dkeys = results(inputs, rows)
    assert scores.isnan().nonzero().tolist() == [[17, 2]]
    kept = torch.arange(40) != 17
    for found, expected in zip((scores, dq, dgate), healthy, strict=False):
        assert torch.equal(found[kept], expected[kept])
    assert dgate[17].isnan().all()
    assert dkeys.isfinite().all()


def test_a_key_that_is_no_number_is_loud() -> None:
    inputs, rows = case(PackLayout.single(24), heads=3, width=16, topk=8)
    inputs[2][1] = NAN
    scores = results(inputs, rows)[0]
    assert torch.equal(scores.isnan(), rows == 1)


def test_twice_gives_the_same_bits() -> None:
    inputs, rows = case(PackLayout.from_lengths([30, 13]), heads=8, width=16, topk=7)
    assert all(torch.equal(one, other) for one, other in zip(results(inputs, rows), results(inputs, rows), strict=True))


def test_a_neighbour_changes_no_bit() -> None:
    inputs, rows = case(PackLayout.from_lengths([30, 17]), heads=8, width=16, topk=4)
    found = []
    for scale in (1.0, -3.0):
        q, gate = (torch.cat([x[:30], scale * x[30:]]) for x in inputs[:2])
        keys = torch.cat([inputs[2][:7], scale * inputs[2][7:]])
        scores, dq, dgate, dkeys = results([q, gate, keys], rows)
        found.append((scores[:30], dq[:30], dgate[:30], dkeys[:7]))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_the_choice_falls_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from v4model.ops import twins as choice
    from v4model.ops.fast.index_scores import index_scores as fast

    monkeypatch.setattr(choice, "runs_fast", lambda _: True)
    inputs, rows = case(LAYOUTS["ragged"], heads=3, width=16, topk=4)
    inputs = [x.to(DEVICE, torch.float32) for x in inputs]
    assert torch.equal(pick.index_scores(*inputs, rows=rows), fast(*inputs, rows=rows))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs 14 GiB of a GPU: more than 2^31 elements")
def test_more_than_two_to_the_31_elements() -> None:
    from v4model.ops.fast.index_scores import index_scores as fast

    heads, width, topk, used = 64, 128, 16, 32
    tokens = 2**31 // (heads * width) + 256
    q = torch.empty(tokens, heads, width, dtype=NARROW, device=DEVICE)
    gate = torch.empty(tokens, heads, device=DEVICE)
    rows = torch.full((tokens, topk), -1, device=DEVICE)
    rows[-used:] = torch.arange(used * topk, device=DEVICE).view(used, topk) % 50
    ends = [randn(used, heads, width).to(DEVICE, NARROW), randn(used, heads, seed=1).to(DEVICE, torch.float32)]
    q[-used:], gate[-used:] = ends
    keys = randn(50, width, seed=2).to(DEVICE, NARROW)

    def run(q: Tensor, gate: Tensor, rows: Tensor) -> list[Tensor]:
        leaves = [q.requires_grad_(), gate.requires_grad_(), keys.clone().requires_grad_()]
        scores = fast(*leaves, rows=rows)
        return [scores, *torch.autograd.grad(scores, leaves, torch.ones_like(scores))]

    scores, dq, dgate, dkeys = run(q, gate, rows)
    expected = run(*ends, rows[-used:])
    assert torch.equal(scores[-used:], expected[0])
    assert torch.equal(dq[-used:], expected[1])
    assert torch.equal(dgate[-used:], expected[2])
    assert torch.equal(dkeys, expected[3])
    assert (scores[:-used] == float("-inf")).all()
    assert not int(torch.count_nonzero(dq[:-used]))
