"""Every sample of a pack run alone, as one observation: what the law says that the packed run must equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from harness.subjects.protocol import Depth, Observation, Recorder
from harness.subjects.record import Record, laid_on
from v4model import Pack, PackLayout

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject
    from v4model import V4Config


Within: TypeAlias = Callable[[range], AbstractContextManager[object]]
"""What a sample is run inside of, by its tokens in the pack."""


def _nothing(_tokens: range) -> AbstractContextManager[object]:
    return nullcontext()


@dataclass(frozen=True)
class Alone:
    """A subject that runs another one on one sample at a time, each in a pack of its own without padding.

    Its depths hold zeros at padding, its sums and counts are those of all samples added. It has no losses: their
    denominators couple samples, so they are not made of what each sample gives alone.
    """

    inner: Subject
    within: Within = _nothing

    @property
    def name(self) -> str:
        """The inner subject's name, marked."""
        return f"{self.inner.name} alone"

    @property
    def config(self) -> V4Config:
        """The inner subject's."""
        return self.inner.config

    def parameters(self) -> Mapping[str, Tensor]:
        """The inner subject's."""
        return self.inner.parameters()

    def embeddings(self, pack: Pack) -> Tensor:
        """[T, D] as the inner subject looks them up for the whole pack."""
        return self.inner.embeddings(pack)

    def observe(self, pack: Pack, *, embeddings: Tensor | None = None) -> Observation:
        """Run every sample alone; gradients flow to the samples' slices of `embeddings` [T, D]."""
        runs = []
        for tokens, single, own in _singles(pack, embeddings):
            with self.within(tokens):
                runs.append(self.inner.observe(single, embeddings=own))
        return Observation(
            depths=tuple(
                Depth(
                    values=_in_place([depth.values for depth in depths], pack.layout),
                    nll=_in_place([depth.nll for depth in depths], pack.layout),
                    valid=_in_place([depth.valid for depth in depths], pack.layout),
                )
                for depths in zip(*(run.depths for run in runs), strict=True)
            ),
            sums={name: torch.stack([run.sums[name].reshape(()) for run in runs]).sum() for name in runs[0].sums},
            counts={name: sum(run.counts[name] for run in runs) for name in runs[0].counts},
            losses={},
        )


def recorded_alone(recorder: Recorder, pack: Pack, *, embeddings: Tensor | None, within: Within = _nothing) -> Record:
    """What the recorder's parts read and put out for every sample alone, at the samples' places in the pack."""
    parts = []
    for tokens, single, own in _singles(pack, embeddings):
        with within(tokens):
            record = recorder.layer_outputs(single, embeddings=own)
        parts.append((record, torch.arange(tokens.start, tokens.stop)))
    return laid_on(parts, total=pack.layout.total)


def _singles(pack: Pack, embeddings: Tensor | None) -> Iterator[tuple[range, Pack, Tensor | None]]:
    """Each sample's tokens in the pack, the sample as a pack, and its rows of the embeddings [T, D]."""
    for start, length in zip(pack.layout.starts, pack.layout.lengths, strict=True):
        part = slice(start, start + length)
        single = Pack(pack.tokens[part], layout=PackLayout.single(length), supervised=pack.supervised[part])
        yield range(start, start + length), single, None if embeddings is None else embeddings[part]


def _in_place(parts: list[Tensor], layout: PackLayout) -> Tensor:
    """[T, ...] the samples' rows at their tokens of the pack, zeros elsewhere."""
    pieces: list[Tensor] = []
    end = 0
    for part, start in zip(parts, layout.starts, strict=True):
        pieces += [part.new_zeros((start - end, *part.shape[1:])), part]
        end = start + len(part)
    pieces.append(parts[0].new_zeros((layout.total - end, *parts[0].shape[1:])))
    return torch.cat(pieces)
