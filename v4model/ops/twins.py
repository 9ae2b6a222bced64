"""Which operations run on their fast twin: the one place that decides it."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_FAST_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
# Of the whole process: a backward pass computes again on threads of its own what the forward pass computed here.
_kept_plain: list[None] = []


def runs_fast(x: Tensor) -> bool:
    """Whether the operations on `x` run on their fast twins: on a CUDA device, where Triton is installed.

    float64 exists to separate defects from rounding, and stays with the plain functions.
    """
    return x.is_cuda and has_fast_twins(x.dtype) and not _kept_plain and _has_triton()


def has_fast_twins(dtype: torch.dtype) -> bool:
    """Whether the fast twins take tensors of `dtype`."""
    return dtype in _FAST_DTYPES


@contextmanager
def plain_only() -> Iterator[None]:
    """Keeps the process's operations on the plain functions, to compare with them."""
    _kept_plain.append(None)
    try:
        yield
    finally:
        _kept_plain.pop()


def has_fast_twin(module: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Of a function whose first argument is a tensor: the function of the same name in `v4model.ops.fast.<module>`.

    The plain function stays at hand as `__wrapped__`.
    """

    def decorate(plain: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @wraps(plain)
        def chosen(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            x = args[0]
            assert isinstance(x, Tensor), "the first argument is a tensor, given by position"
            return (_twin(module, plain.__name__) if runs_fast(x) else plain)(*args, **kwargs)

        return chosen

    return decorate


@cache
def _twin(module: str, name: str) -> Callable[..., Result]:
    twin: Callable[..., Result] = getattr(importlib.import_module(f"v4model.ops.fast.{module}"), name)
    return twin


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
