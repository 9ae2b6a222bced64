"""Packed against padded: the same corpus, the same tokens a step, step after step in turns, so that times pair."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from v4model.train.engine import Engine
from v4model.train.feed import Feed, StepPacks


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A step of either layout: seconds, and what of its tokens is real and supervised."""

    packed_seconds: float
    padded_seconds: float
    packed_real: int
    padded_real: int
    packed_supervised: int
    padded_supervised: int

    @property
    def ratio(self) -> float:
        """Packed over padded."""
        return self.packed_seconds / self.padded_seconds


@dataclass(frozen=True)
class Comparison:
    """All pairs of a run."""

    pairs: tuple[Pair, ...]

    @property
    def ratio(self) -> tuple[float, float, float]:
        """Of step times, packed over padded: median over pairs, least, largest."""
        ratios = [pair.ratio for pair in self.pairs]
        return statistics.median(ratios), min(ratios), max(ratios)

    def rate(self, layout: str, tokens: str) -> float:
        """Tokens ("real" or "supervised") a second of a layout ("packed" or "padded"), over all pairs."""
        count = sum(getattr(pair, f"{layout}_{tokens}") for pair in self.pairs)
        return float(count / sum(getattr(pair, f"{layout}_seconds") for pair in self.pairs))

    def factor(self, tokens: str) -> float:
        """How many times the padded layout's tokens a second the packed one reaches."""
        return self.rate("packed", tokens) / self.rate("padded", tokens)


def compare(
    engine: Engine,
    *,
    packed: Feed,
    padded: Feed,
    pairs: int,
    warmup: int = 2,
    done: Callable[[], None] | None = None,
) -> Comparison:
    """Train steps of both layouts in turns; which of them goes first alternates too.

    Args:
        warmup: pairs that are run and not counted.
    """
    found, step = [], 0
    for number in range(-warmup, pairs):
        parts = {"packed": packed.step(number + warmup), "padded": padded.step(number + warmup)}
        seconds = {}
        for layout in ("packed", "padded") if number % 2 else ("padded", "packed"):
            seconds[layout] = _timed(engine, parts[layout], step)
            step += 1
        if number >= 0:
            found.append(
                Pair(
                    packed_seconds=seconds["packed"],
                    padded_seconds=seconds["padded"],
                    packed_real=parts["packed"].real_tokens,
                    padded_real=parts["padded"].real_tokens,
                    packed_supervised=parts["packed"].counts.labels[0],
                    padded_supervised=parts["padded"].counts.labels[0],
                )
            )
        if done is not None:
            done()
    return Comparison(tuple(found))


def _timed(engine: Engine, packs: StepPacks, step: int) -> float:
    began = time.perf_counter()
    engine.update(step, engine.gradients(packs))
    if engine.model.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began
