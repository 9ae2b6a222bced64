"""The one function that chooses a twin."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from v4model.ops import norm, twins


def test_float64_and_cpus_stay_plain() -> None:
    assert not twins.runs_fast(torch.zeros(1))
    assert not twins.runs_fast(torch.zeros(1, dtype=torch.float64))


def test_the_choice_falls_on_the_function_of_the_same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def twin(module: str, name: str) -> object:
        asked.append((module, name))
        return lambda x, **_: x + 1

    monkeypatch.setattr(twins, "runs_fast", lambda _: True)
    monkeypatch.setattr(twins, "_twin", twin)
    found: Tensor = norm.rms_norm(torch.ones(2, 2), eps=1.0)
    assert found.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert asked == [("norm", "rms_norm")]


def test_plain_only_is_left_again() -> None:
    def fail() -> None:
        with twins.plain_only():
            assert twins._kept_plain
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not twins._kept_plain
