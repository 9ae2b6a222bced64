"""A new layout compiles nothing new, but for the powers of two of its number of windows."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from dataclasses import replace
from types import ModuleType

import pytest
import torch

from suites.v4model.support import random_pack
from v4model import V4Model, presets
from v4model.ops.fast import kernels
from v4model.pack import PackLayout

pytestmark = pytest.mark.usefixtures("poisoned")

NAMES = [module.name for module in pkgutil.iter_modules(kernels.__path__)]


def variants(modules: list[ModuleType]) -> int:
    """Compiled forms of all kernels on the first device."""
    found = [kernel for module in modules for kernel in vars(module).values() if hasattr(kernel, "device_caches")]
    return sum(len(kernel.device_caches[0][0]) for kernel in found)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the interpreter compiles nothing")
def test_layouts_compile_nothing() -> None:
    modules = [importlib.import_module(f"v4model.ops.fast.kernels.{name}") for name in NAMES]
    config = replace(presets.three_kinds(), fixed_shape_experts=False)
    model = V4Model(config, dtype=torch.bfloat16, device="cuda")
    counts = []
    for lengths in ([700, 33], [1], [5, 1, 260, 44], [611], [127, 128, 129], [3, 700]):
        model(random_pack(PackLayout.from_lengths(lengths, total=sum(lengths) + 7))).loss.backward()
        counts.append(variants(modules))
    assert counts[0] > 8
    # Rows of scores are as long as a power of two, of 128 or more.
    assert counts[-1] - counts[0] <= 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="without a GPU nothing runs beside the host")
def test_the_host_never_waits_in_a_step() -> None:
    config = replace(presets.three_kinds(), fixed_shape_experts=False)
    model = V4Model(config, dtype=torch.bfloat16, device="cuda")
    # Kernels are compiled and tables of constants made by the first step; the layout of the second one is new.
    model(random_pack(PackLayout.from_lengths([300, 40]))).loss.backward()
    pack = random_pack(PackLayout.from_lengths([5, 1, 260, 74]))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
    try:
        model(pack).loss.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
