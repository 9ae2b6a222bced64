"""Lets megatron-core's CUDA-only parts run on the CPU: what it asks of device "cuda" is given on the CPU.

Its data parallelism, optimizer and schedules name the device "cuda" and the types torch.cuda.*Tensor; nothing in them
needs a GPU otherwise. Collectives go over gloo. On a GPU the same code runs unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class _CudaMeansCpu(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        if func is Tensor.cuda:
            return args[0]
        if func is Tensor.type and len(args) == 1 and not kwargs:
            return func(*args).replace("torch.", "torch.cuda.")
        return func(*args, **kwargs)


@contextmanager
def cuda_means_cpu() -> Iterator[None]:
    """Inside, "cuda" is the CPU."""
    here = {
        "current_device": lambda: torch.device("cpu"),
        "current_stream": mock.MagicMock,
        "synchronize": lambda: None,
    }
    with mock.patch.multiple(torch.cuda, **here), _CudaMeansCpu():
        yield
