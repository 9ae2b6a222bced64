"""What adapters of public models share: weights of a V4Model, embeddings put in by a hook, float64.

A peer computes logits. Labels, masks, losses and auxiliary terms are its trainer's and are not asked for: sums of nll
are made from its logits, inside samples.

Letters: T tokens of the pack, D hidden size, V vocabulary.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import ModuleType
from typing import Any
from unittest import mock

import numpy.typing as npt
import torch
from torch import Tensor, nn

from harness.subjects.adapter import Adapter, Outputs
from harness.subjects.protocol import Observation
from harness.subjects.record import Record
from harness.subjects.v4model_one_rank import export_weights, lively_model
from v4model import Pack, PackLayout, V4Config

UNSUPPORTED = {
    "float32": "float64 separates a defect from rounding",
    "bfloat16": "float64 separates a defect from rounding",
    "balance": "it is its trainer's",
    "kl": "it has none",
    "nan": "it masks by adding and by multiplying, and NaN comes through either",
    "losses": "labels, masks and losses are its trainer's part",
    # Where every ReLU of an indexer is closed, scores are exactly 0 and a top-k picks by shape. With 32 heads that
    # happens to one pair of query and row in 2^32; with the 4 of the small configurations, to one in 16.
    "index_n_heads!=32": "its top-k has no rule for ties, which 32 index heads do not have",
}


class Peer(Adapter):
    """A public model with the weights that v4model would have for the same configuration and seed."""

    unsupported = UNSUPPORTED

    model: Any
    """The peer's own module; its classes are known in its environment only."""

    def __init__(self, config: V4Config, dtype: torch.dtype, seed: int) -> None:
        super().__init__(config, dtype, seed)
        self.origin = lively_model(config, dtype, seed)

    @property
    @abstractmethod
    def table(self) -> nn.Module:
        """The module that looks embeddings up; its weight is [V, D]."""

    @abstractmethod
    def values(self, layout: PackLayout, ids: Tensor, embeddings: Tensor) -> Sequence[Tensor]:
        """Logits [T, V] of the trunk and of each MTP depth, of ids [T] and embeddings [T, D]; whatever at padding."""

    def parameters(self) -> Mapping[str, Tensor]:
        """Every parameter by the peer's own name."""
        return dict(self.model.named_parameters())

    def embeddings(self, pack: Pack) -> Tensor:
        """[T, D], 0 at padding, detached."""
        with torch.no_grad():
            return self._looked_up(pack).detach()

    def forward(self, pack: Pack, embeddings: Tensor | None) -> Outputs:
        """One forward pass. Padding is 0 going in and coming out, and so is what depth k says past token t + k."""
        real = pack.layout.real[:, None]
        given = self._looked_up(pack) if embeddings is None else torch.where(real, embeddings, 0.0)
        found = self.values(pack.layout, _ids(pack), given)
        # Nobody is trained on a position that has nothing to read ahead: what stands there is left open.
        said = [pack.layout.ahead(depth)[:, None] >= 0 for depth in range(len(found))]
        return Outputs(logits=[torch.where(own, logits, 0.0) for own, logits in zip(said, found, strict=True)])

    def observe(self, pack: Pack, *, embeddings: Tensor | None = None) -> Observation:
        """As an adapter's, without the losses that it would make of the sums."""
        return replace(super().observe(pack, embeddings=embeddings), losses={})

    def export_weights(self) -> Mapping[str, npt.NDArray[Any]]:
        """The weights that it was given, under transformers' names and `mtp.{k}.*`."""
        return export_weights(self.origin)

    def _looked_up(self, pack: Pack) -> Tensor:
        weight = self.table.weight
        assert isinstance(weight, Tensor)
        return torch.where(pack.layout.real[:, None], weight[_ids(pack)], 0.0)


class OneRow(Peer):
    """A peer whose row is the pack itself, token by token, so that what its blocks put out can be told by token."""

    @abstractmethod
    def parts(self) -> Mapping[str, nn.Module]:
        """Attention and experts of each block, by the names of `harness.subjects.record`."""

    def layer_outputs(self, pack: Pack, *, embeddings: Tensor | None = None) -> Record:
        """What attention and experts of each block put out, [T, D] each, in the order of execution."""
        found: dict[str, Tensor] = {}

        def kept(name: str) -> Callable[[nn.Module, tuple[object, ...], object], None]:
            def keep(_module: nn.Module, _given: tuple[object, ...], out: object) -> None:
                rows = out[0] if isinstance(out, tuple) else out
                assert isinstance(rows, Tensor)
                found[name] = rows.detach().reshape(pack.layout.total, -1)

            return keep

        handles = [part.register_forward_hook(kept(name)) for name, part in self.parts().items()]
        try:
            with torch.no_grad():
                self.forward(pack, embeddings)
        finally:
            for handle in handles:
                handle.remove()
        return found


@contextmanager
def embedded(table: nn.Module, embeddings: Tensor, *, rolls: ModuleType | None = None) -> Iterator[None]:
    """Within, `table` gives `embeddings` [T, D] of the row's T tokens for any ids, in the shape of its own lookup.

    rolls: a module whose `roll_tensor` moves ids for MTP. The embeddings of moved ids are moved as it moved them, and
    an id of its own that it filled in is looked up as it is.
    """
    followed = _Followed(len(embeddings))

    def given(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], found: Tensor) -> Tensor:
        rows = followed.rows([*args, *kwargs.values()])
        own = found.reshape(len(rows), -1)
        return torch.where((rows > 0)[:, None], embeddings[(rows - 1).clamp(min=0)], own).reshape(found.shape)

    handle = table.register_forward_hook(given, with_kwargs=True)
    try:
        with nullcontext() if rolls is None else mock.patch.object(rolls, ROLL, followed.by(getattr(rolls, ROLL))):
            yield
    finally:
        handle.remove()


ROLL = "roll_tensor"
"""What both Megatron and nemo_automodel call the function that moves ids for MTP."""


class _Followed:
    """Which token of the row stands where in tensors of ids, through any number of rolls.

    Rows are counted from 1; 0 stands where a roll filled in an id of its own.
    """

    def __init__(self, total: int) -> None:
        self._first = 1 + torch.arange(total)
        # Tensors are kept, so that no other one gets their identity.
        self._known: dict[int, tuple[Tensor, Tensor]] = {}

    def rows(self, given: Sequence[object]) -> Tensor:
        """[T] of the first of the given tensors that a roll made; the row as it is if none was rolled."""
        found = [self._known[id(one)][1].reshape(-1) for one in given if id(one) in self._known]
        return found[0] if found else self._first

    def by(self, roll: Callable[..., Any]) -> Callable[..., Any]:
        """The same roll, followed."""

        def rolled(ids: Tensor, *args: Any, **how: Any) -> Any:
            made = roll(ids, *args, **how)
            before = self._known[id(ids)][1] if id(ids) in self._known else self._first.reshape(ids.shape)
            moved, new = (one[0] if isinstance(one, tuple) else one for one in (roll(before, *args, **how), made))
            self._known[id(new)] = new, moved
            return made

        return rolled


def slots(layout: PackLayout) -> list[tuple[int, int]]:
    """First token and length of each sample, and of each stretch of padding, in their order."""
    ends = [start + length for start, length in zip(layout.starts, layout.lengths, strict=True)]
    starts = sorted({0, *layout.starts, *ends} - {layout.total})
    return [(start, end - start) for start, end in zip(starts, [*starts[1:], layout.total], strict=True)]


def positions(layout: PackLayout) -> Tensor:
    """LongTensor [T]: from 0 at each sample's first token, and at each first token of padding."""
    return torch.cat([torch.arange(length) for _, length in slots(layout)])


def _ids(pack: Pack) -> Tensor:
    """Token ids [T]; 0 at padding, where ids may be none of the vocabulary."""
    return torch.where(pack.layout.real, pack.tokens, 0)
