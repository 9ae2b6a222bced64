"""Where the fast twins run in these tests, and that memory which no kernel wrote is seen."""

from __future__ import annotations

import importlib.util
import os
import sys

import pytest
import torch

# Read by Triton when it is imported, and by nothing else: kernels then run as Python on the host.
if not torch.cuda.is_available() and "triton" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what needs Triton where it is not there: every test that asks for `poisoned` memory."""
    if item.get_closest_marker("usefixtures") is None:
        return
    if importlib.util.find_spec("triton") is None:
        pytest.skip(reason="Triton is not installed: these kernels run on a GPU or in its interpreter")
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip(reason="Triton was imported before its interpreter could be asked for, and there is no GPU")


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """New tensors of floats are full of NaN: what a kernel leaves unwritten does not pass for a number."""
    empty, empty_like = torch.empty, torch.empty_like

    def full_of_nan(x: torch.Tensor) -> torch.Tensor:
        return x.fill_(float("nan")) if x.is_floating_point() else x.fill_(-(2**30))

    monkeypatch.setattr(torch, "empty", lambda *sizes, **kwargs: full_of_nan(empty(*sizes, **kwargs)))
    monkeypatch.setattr(torch, "empty_like", lambda x, **kwargs: full_of_nan(empty_like(x, **kwargs)))
