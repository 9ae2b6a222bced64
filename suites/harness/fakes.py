"""A model of a few lines, healthy and broken, and properties for it: the harness is tested without the real model.

Values of a token are the running sum of embeddings inside its sample; the leaking variant runs over the whole pack.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.case import Case
from harness.corpus import Corpus
from harness.faults.registry import Fault
from harness.properties import Property
from harness.subjects.protocol import Depth, Observation, Subject
from harness.verdict import Verdict
from harness.witness import Place, Witness
from v4model import Pack, PackLayout, V4Config

WIDTH = 3


@dataclass(frozen=True)
class Text:
    """A sample of the fake corpus."""

    tokens: tuple[int, ...]
    supervised: tuple[bool, ...]


def corpus() -> Corpus:
    """Five samples of 5 to 25 tokens, the second half of each supervised; ids beyond the model's vocabulary occur."""
    samples = []
    for index in range(5):
        tokens = tuple((97 * index + 31 * step) % 1000 for step in range(5 * (index + 1)))
        samples.append(Text(tokens, tuple(2 * step >= len(tokens) for step in range(len(tokens)))))
    return Corpus("fake", tuple(samples), 1000)


class RunningSum:
    """The fake model; `leaks` says whether samples see each other, and a planted fault may set it."""

    def __init__(self, config: V4Config, dtype: torch.dtype, seed: int, *, leaks: bool = False) -> None:
        self.name = "running sum"
        self.config = config
        self.leaks = leaks
        generator = torch.Generator().manual_seed(seed)
        self._table = (torch.rand(config.vocab_size, WIDTH, generator=generator, dtype=dtype) + 1).requires_grad_()

    def parameters(self) -> Mapping[str, Tensor]:
        """The embedding table."""
        return {"table": self._table}

    def embeddings(self, pack: Pack) -> Tensor:
        """[T, 3], 0 at padding."""
        return self._rows(pack).detach()

    def _rows(self, pack: Pack) -> Tensor:
        return self._table[pack.tokens] * pack.layout.real[:, None]

    def observe(self, pack: Pack, *, embeddings: Tensor | None = None) -> Observation:
        """One depth, the trunk."""
        rows = self._rows(pack) if embeddings is None else embeddings
        if self.leaks:
            values = rows.cumsum(0)
        else:
            values = torch.zeros_like(rows)
            for start, length in zip(pack.layout.starts, pack.layout.lengths, strict=True):
                values[start : start + length] = rows[start : start + length].cumsum(0)
        nll = values.sum(1)
        trunk = Depth(values, nll, pack.layout.real)
        return Observation((trunk,), {"main": nll.sum()}, {"main": pack.layout.real_tokens}, {"loss": nll.mean()})


def healthy(config: V4Config, dtype: torch.dtype, seed: int) -> Subject:
    """Every sample as if it were alone."""
    return RunningSum(config, dtype, seed)


def leaking(config: V4Config, dtype: torch.dtype, seed: int) -> Subject:
    """Every sample sees all before it."""
    return RunningSum(config, dtype, seed, leaks=True)


def raising(config: V4Config, dtype: torch.dtype, seed: int) -> Subject:
    """A model that cannot be built."""
    raise MemoryError(f"no room for seed {seed} in {dtype}\n{config.hidden_size} channels")


def leaving(*_: object) -> Subject:
    """A model whose script takes itself for the program."""
    sys.exit(0)


_built: list[int] = []


def fickle(config: V4Config, dtype: torch.dtype, seed: int) -> Subject:
    """Leaks only in the third model that this process builds, so that a violation never comes back."""
    _built.append(seed)
    return RunningSum(config, dtype, seed, leaks=len(_built) == 3)


NOT_CALLABLE = 7


def _check_alone(subject: Subject, case: Case, text: Corpus) -> Verdict:
    """The pack's values against each sample's own, to the bit."""
    if len(case.lengths) < 2:
        return Verdict.vacuous("one sample has no neighbour")
    pack = case.pack(text)
    packed = subject.observe(pack).depths[0].values.detach()
    for sample, (start, length) in enumerate(zip(case.layout().starts, case.lengths, strict=True)):
        alone = Pack(pack.tokens[start : start + length], layout=PackLayout.single(length))
        other = subject.observe(alone).depths[0].values.detach()
        differs = (packed[start : start + length] - other).abs().amax(1)
        if differs.max() > 0:
            position = int(differs.argmax())
            place = Place(sample, position, start + position)
            return Verdict.violated(
                Witness(
                    property="fake_alone",
                    query=place,
                    branch="local",
                    what="values moved",
                    magnitude=float(differs.max()),
                    bound=0.0,
                )
            )
    return Verdict.holds(error=0.0, bound=0.0)


def _only_on_hca(action: Callable[[], None]) -> Callable[[Subject, Case, Corpus], Verdict]:
    def check(_subject: Subject, case: Case, _corpus: Corpus) -> Verdict:
        if case.kind == "hca":
            action()
        return Verdict.holds(error=0.0, bound=0.0)

    return check


def _wait_at_gate() -> None:
    # Opening a named pipe waits for its reader, who gets our process id, and the end of the pipe when we die.
    with open("gate", "w", encoding="ascii") as gate:
        print(os.getpid(), file=gate, flush=True)
        threading.Event().wait()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _check_nothing(_subject: Subject, _case: Case, _corpus: Corpus) -> Verdict:
    return Verdict.vacuous("nothing to see")


ALONE = Property("fake_alone", "values of a sample are those it has alone", _check_alone)
VACUOUS = Property("fake_vacuous", "never put to the test", _check_nothing)
GATED = Property("fake_gated", "waits for good on hca", _only_on_hca(_wait_at_gate))
DEADLY = Property("fake_deadly", "kills its process on hca", _only_on_hca(_die))


@contextmanager
def _plant_leak(subject: Subject) -> Iterator[None]:
    assert isinstance(subject, RunningSum)
    subject.leaks = True
    try:
        yield
    finally:
        subject.leaks = False


LEAK = Fault("Z1", "samples see all before them", "no public report", "fake_alone", ("dense", "csa"), _plant_leak)


def named(attribute: str) -> str:
    """How the catalogue names something of this module."""
    return f"{__name__}:{attribute}"
