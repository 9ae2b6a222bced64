"""Lifts the float32 islands of someone else's module code to float64, so that a defect stands apart from rounding.

Every formula stays the module's own: only the dtype that it asks for by name changes, and only within a context.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch import Tensor


class WideTorch(ModuleType):
    """torch, except that its float32 is float64."""

    float32 = float = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@contextmanager
def float32_is_float64(modules: Sequence[str]) -> Iterator[None]:
    """Within, `torch` in the modules of these names has no float32, and `Tensor.float` gives float64 in the process.

    Modules that are not imported, or do not import torch by its name, are left alone.
    """
    wide = WideTorch("torch")
    with ExitStack() as stack:
        for name in modules:
            module = sys.modules.get(name)
            if module is not None and getattr(module, "torch", None) is torch:
                stack.enter_context(mock.patch.object(module, "torch", wide))
        stack.enter_context(mock.patch.object(Tensor, "float", Tensor.double))
        yield
