"""The packed model on a CUDA device, where its fast operations run, with bounds that follow its own rounding.

The weights are those of `v4model`, rounded to the dtype. Beside the subject stand two more models of the same weights:
one of plain operations, one in float64 (`harness.subjects.protocol.Measurable`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from harness.errors import UsageError
from harness.subjects.protocol import Choice, Observation, Subject, Unsupported
from harness.subjects.record import Record
from harness.subjects.v4model_choices import choosing
from harness.subjects.v4model_one_rank import V4OneRank, lively_model
from v4model import Pack, V4Config, V4Model
from v4model.ops.twins import plain_only


@dataclass(frozen=True, eq=False)
class V4OnDevice(V4OneRank):
    """`V4OneRank` on a device. is_plain: its fast operations are left aside."""

    unsupported: Mapping[str, str] = field(default_factory=dict)
    is_plain: bool = False

    def observe(self, pack: Pack, *, embeddings: Tensor | None = None) -> Observation:
        """As `V4OneRank.observe`; sums over tokens are taken in a fixed order."""
        with self._operations(), _sums_in_order(self.model.device):
            return super().observe(pack, embeddings=embeddings)

    def layer_outputs(self, pack: Pack, *, embeddings: Tensor | None = None) -> Record:
        """As `V4OneRank.layer_outputs`."""
        with self._operations(), _sums_in_order(self.model.device):
            return super().layer_outputs(pack, embeddings=embeddings)

    def on_ranks(self, ranks: int, *, processes: bool) -> Subject:  # noqa: ARG002 - one of the protocol's names
        """Raises Unsupported."""
        raise Unsupported("ranks are simulated on the CPU; v4model-nccl gives each a GPU")

    def plain(self) -> V4OnDevice:
        """The same weights in the same dtype and place, by plain operations."""
        return self._with_these_weights(self.model.dtype, f"{self.name} plain")

    def exact(self) -> V4OnDevice:
        """The same weights in float64 in the same place, where all operations are plain."""
        return self._with_these_weights(torch.float64, f"{self.name} in float64")

    def choosing(self, choices: Record, rows: Tensor) -> AbstractContextManager[Mapping[str, Choice]]:
        """As the protocol has it."""
        return choosing(self.model, choices, rows)

    def _operations(self) -> AbstractContextManager[None]:
        return plain_only() if self.is_plain else nullcontext()

    def _with_these_weights(self, dtype: torch.dtype, name: str) -> V4OnDevice:
        model = _beside(self.config, dtype, self.model.device)
        model.load_state_dict(self.model.state_dict())
        return V4OnDevice(model, self.seed, name, is_plain=True)


@dataclass(frozen=True, eq=False)
class OnDevice:
    """A factory of subjects on one device. unsupported: what they declare, dtypes among it."""

    name: str
    device: str
    unsupported: Mapping[str, str]

    def __call__(self, config: V4Config, dtype: torch.dtype, seed: int) -> V4OnDevice:
        """A subject with the weights that `v4model` has for the same arguments."""
        # A thread of a backward pass gets its context when it first needs one, and torch says so.
        warnings.filterwarnings("ignore", "Attempting to run cuBLAS, but there was no current CUDA context")
        model = V4Model(config, dtype=dtype, device=self.device)
        model.load_state_dict(lively_model(config, dtype, seed).state_dict())
        return V4OnDevice(model, seed, self.name, unsupported=self.unsupported)

    def check_machine(self) -> None:
        """Raises UsageError where there is no such device."""
        if torch.device(self.device).type == "cuda" and not torch.cuda.is_available():
            raise UsageError(got="no CUDA device", expected="a machine with one", where=f"subject {self.name}")


_FLOAT64 = {"float64": "fast operations are of float32 and narrower types"}
_BFLOAT16_ALONE = {**_FLOAT64, "float32": "v4model-cuda is asked in it"}

FLOAT32 = OnDevice("v4model-cuda", "cuda", _FLOAT64)
BFLOAT16 = OnDevice("v4model-cuda-bfloat16", "cuda", _BFLOAT16_ALONE)


@lru_cache(maxsize=4)
def _beside(config: V4Config, dtype: torch.dtype, device: torch.device) -> V4Model:
    """A model whose weights are set before each use; nothing is planted in it."""
    return V4Model(config, dtype=dtype, device=device)


@contextmanager
def _sums_in_order(device: torch.device) -> Iterator[None]:
    """Within, torch adds rows up in a fixed order on a CUDA device, where it takes any otherwise (`index_add`).

    The balance loss is such a sum, and bits are compared. torch then also fills new memory with NaN, so that what a
    kernel leaves unwritten shows. Its warnings name operations that have no fixed order: none of those gives a value
    that is compared to the bit, or the comparison finds it out.
    """
    if device.type != "cuda":
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
