"""What adapters of public models share: embeddings that follow ids through rolls, rows of a pack, float64."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.subjects.peer import embedded, positions, slots
from harness.subjects.wide import float32_is_float64
from v4model import PackLayout

GIVEN = torch.tensor([[10.0], [11.0], [12.0], [13.0]])


def roll(ids: Tensor) -> Tensor:
    """As nemo_automodel rolls: the last place gets an id of its own, 0."""
    return torch.roll(ids, -1, -1).index_fill(-1, torch.tensor([ids.shape[-1] - 1]), 0)


def roll_and_sum(ids: Tensor) -> tuple[Tensor, Tensor]:
    """As Megatron rolls."""
    return roll(ids), roll(ids).sum()


@pytest.fixture
def table() -> nn.Embedding:
    return nn.Embedding.from_pretrained(torch.tensor([[5.0], [6.0], [7.0]]))


def module_of(function: Any) -> ModuleType:
    module = ModuleType("theirs")
    module.roll_tensor = function  # type: ignore[attr-defined]
    return module


def test_a_lookup_gives_the_embeddings_and_the_table_is_left_as_it_was(table: nn.Embedding) -> None:
    ids = torch.tensor([[1, 2, 0, 1]])
    before = table(ids)
    with embedded(table, GIVEN):
        assert torch.equal(table(ids), GIVEN[None])
        assert torch.equal(table(ids.T), GIVEN[:, None])
    assert torch.equal(table(ids), before)


@pytest.mark.parametrize("function", [roll, roll_and_sum])
def test_embeddings_of_rolled_ids_are_rolled_as_they_were(table: nn.Embedding, function: Any) -> None:
    ids, theirs = torch.tensor([[1, 2, 0, 1]]), module_of(function)
    with embedded(table, GIVEN, rolls=theirs):
        once = theirs.roll_tensor(ids)
        once = once[0] if isinstance(once, tuple) else once
        twice = theirs.roll_tensor(once)
        twice = twice[0] if isinstance(twice, tuple) else twice
        # What a roll fills in is an id of its own, 0, which the table knows.
        assert table(once)[0, :, 0].tolist() == [11, 12, 13, 5]
        assert table(twice)[0, :, 0].tolist() == [12, 13, 5, 5]
        assert table(ids)[0, :, 0].tolist() == [10, 11, 12, 13]
    assert theirs.roll_tensor is function


def test_gradients_reach_the_embeddings_that_were_given(table: nn.Embedding) -> None:
    leaf = GIVEN.clone().requires_grad_()
    with embedded(table, leaf):
        found = table(torch.tensor([0, 0, 0, 0]))
    (grad,) = torch.autograd.grad((found * torch.arange(4)[:, None]).sum(), leaf)
    assert grad[:, 0].tolist() == [0, 1, 2, 3]


def test_positions_restart_at_samples_and_at_padding() -> None:
    layout = PackLayout.from_lengths([2, 3], slots=[4, 3], total=9)
    assert slots(layout) == [(0, 2), (2, 2), (4, 3), (7, 2)]
    assert positions(layout).tolist() == [0, 1, 0, 1, 0, 1, 2, 0, 1]


def test_float32_is_float64_in_the_named_modules_only(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = ModuleType("theirs_of_float32")
    exec("import torch\ndef one(): return torch.ones(1, dtype=torch.float32)", theirs.__dict__)
    monkeypatch.setitem(sys.modules, theirs.__name__, theirs)
    with float32_is_float64([theirs.__name__, "no.such.module"]):
        assert theirs.one().dtype is torch.float64
        assert torch.ones(1, dtype=torch.float32).dtype is torch.float32
        assert torch.ones(1, dtype=torch.bfloat16).float().dtype is torch.float64
    assert theirs.one().dtype is torch.float32
    assert torch.ones(1, dtype=torch.bfloat16).float().dtype is torch.float32
