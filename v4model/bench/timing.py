"""Times of work on a device: warmed up, synchronised, repeated."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch


@dataclass(frozen=True)
class Times:
    """Milliseconds of each repetition, in the order they were taken."""

    each_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        return median(self.each_ms)

    @property
    def spread(self) -> float:
        """Slowest less fastest, as a share of the median."""
        return (max(self.each_ms) - min(self.each_ms)) / self.median_ms


def timed(work: Callable[[], object], *, device: torch.device, repeats: int) -> Times:
    """`work` once unmeasured (kernels are compiled, memory is taken), then `repeats` times.

    On a CUDA device by its own events, so that the host's way to the measured work does not count.
    """
    work()
    return Times(tuple((_by_events if device.type == "cuda" else _by_clock)(work) for _ in range(repeats)))


def _by_clock(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


def _by_events(work: Callable[[], object]) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end))


def matrix_ceiling(*, device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of a large product of random matrices, the most that anything else is compared with."""
    side = 8192 if device.type == "cuda" else 512
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    times = timed(lambda: left @ right, device=device, repeats=10)
    return 2.0 * side**3 / (times.median_ms / 1e3)
