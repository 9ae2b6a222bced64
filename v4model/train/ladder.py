"""The memory ladder: the peak of a step window by window, each in a fresh process, beside what the planner predicts."""

from __future__ import annotations

import json
import math
import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from v4model.data import Recipe, load_packs, load_tokenizer, open_source
from v4model.errors import ConfigError, DataError
from v4model.layers.share import Share
from v4model.ops.twins import runs_fast
from v4model.train.engines import engine_of
from v4model.train.feed import Feed
from v4model.train.memory import peak_of
from v4model.train.settings import TrainSettings
from v4model.train.work import Parts, Work

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is measured: a step of one pack of `window` tokens; path and tokenizer as `v4model train` takes them."""

    settings: TrainSettings
    window: int
    path: Path | None
    tokenizer: str


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One window. measured is None where the memory did not suffice.

    longest: tokens of the longest sample. measured: bytes that tensors held at the peak; reserved: bytes that the
    allocator held; used: bytes of the card, the driver's included. seconds: of the second step. parts: as predicted
    before any fit. fitted: bytes by the fit of all rungs; left_out: by a fit of all rungs but this one.
    """

    window: int
    longest: int
    parts: Parts
    measured: int | None = None
    reserved: int | None = None
    used: int | None = None
    seconds: float | None = None
    fitted: float | None = None
    left_out: float | None = None

    def error(self, predicted: float | None) -> float | None:
        """Relative to what was measured."""
        return None if predicted is None or self.measured is None else predicted / self.measured - 1


@dataclass(frozen=True)
class Fit:
    """measured = exact + scale * (predicted - exact) + constant; parameters, gradients and optimizer are exact."""

    scale: float
    constant: float

    def predict(self, parts: Parts) -> float:
        return parts.exact + self.scale * (parts.total - parts.exact) + self.constant


def climb(
    tasks: Sequence[Task], *, measure: Callable[[Task], Rung] | None = None, done: Callable[[Rung], None] | None = None
) -> list[Rung]:
    """Every task in a process of its own, one after another; then the fit, and each rung's prediction.

    Args:
        measure: of one task, in this process; for tests.
    """
    rungs = []
    for task in tasks:
        rungs.append(measure(task) if measure is not None else _in_fresh_process(task))
        if done is not None:
            done(rungs[-1])
    return fitted(rungs)


def fitted(rungs: Sequence[Rung]) -> list[Rung]:
    """The rungs with what the fits say of them; unchanged where fewer than three were measured."""
    known = [rung for rung in rungs if rung.measured is not None]
    if len(known) < 3:
        return list(rungs)
    of_all = fit(known)
    return [
        replace(
            rung,
            fitted=of_all.predict(rung.parts),
            left_out=fit([other for other in known if other is not rung]).predict(rung.parts),
        )
        for rung in rungs
    ]


def fit(rungs: Sequence[Rung]) -> Fit:
    """Least squares of the relative error over measured rungs; of one rung, its constant alone."""
    measured = np.array([float(rung.measured or math.nan) for rung in rungs])
    exact = np.array([rung.parts.exact for rung in rungs])
    rest = np.array([rung.parts.total for rung in rungs]) - exact
    if len(rungs) < 2:
        return Fit(1.0, float((measured - exact - rest).mean()))
    matrix = np.stack([rest, np.ones_like(rest)], axis=1) / measured[:, None]
    (scale, constant), *_ = np.linalg.lstsq(matrix, (measured - exact) / measured, rcond=None)
    return Fit(float(scale), float(constant))


def save_rungs(rungs: Sequence[Rung], path: Path, *, about: dict[str, Any]) -> None:
    """As JSON. Raises DataError."""
    content = {"schema": SCHEMA, **about, "rungs": [asdict(rung) for rung in rungs]}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1), encoding="utf-8")
    except OSError as error:
        raise DataError(got=str(error.strerror), expected="a file that can be written", where=str(path)) from error


def _in_fresh_process(task: Task) -> Rung:
    # Spawned: a fork would share this process's CUDA, and what an allocator once cached changes the next peak.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, task).result()


def measure(task: Task) -> Rung:
    """Two steps of one rank on this process's CUDA device: the second one's time, the peak of both.

    Raises:
        ConfigError: no CUDA device; what a process holds on a CPU is not measured.
    """
    if not torch.cuda.is_available():
        raise ConfigError(got="no CUDA device", expected="one: a CPU's memory is not measured", where="ladder")
    settings = task.settings
    recipe = Recipe(window=task.window, seed=settings.seed, too_long="truncate", unsupervised="drop")
    tokenizer = load_tokenizer(task.tokenizer)
    feed = Feed(load_packs(open_source(task.path), tokenizer=tokenizer, recipe=recipe, cache=None), settings.config, 1)
    steps = [feed.step(number) for number in range(2)]
    longest = max(max(packs.own[0].layout.lengths) for packs in steps)
    fast = runs_fast(torch.empty(0, dtype=settings.torch_dtype, device="cuda"))
    work = Work(tokens=task.window, longest=longest, dtype=settings.dtype, ops="fast" if fast else "plain")
    rung = Rung(window=task.window, longest=longest, parts=peak_of(settings.config, share=Share(), work=work))
    seconds = 0.0
    try:
        engine = engine_of(settings, device="cuda")
        for number, packs in enumerate(steps):
            began = time.perf_counter()
            engine.update(number, engine.gradients(packs))
            torch.cuda.synchronize()
            seconds = time.perf_counter() - began
    except torch.OutOfMemoryError:
        return rung
    free, total = torch.cuda.mem_get_info()
    return replace(
        rung,
        measured=torch.cuda.max_memory_allocated(),
        reserved=torch.cuda.max_memory_reserved(),
        used=total - free,
        seconds=seconds,
    )
