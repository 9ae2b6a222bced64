"""What the comparisons with an oracle share: configurations that leave nothing idle, samples, and measured errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from harness.kinds import config_from_text
from harness.subjects.v4model_one_rank import build
from harness.tolerance import relative_error
from v4model import Pack, PackLayout, V4Config, V4Model, presets

Record = Callable[[str, object], None]
"""pytest's record_property."""

# A clamp that clamps, another number for each epsilon (two that are swapped must differ somewhere), and a balance loss
# that weighs as much as the others.
_TELLING: dict[str, Any] = {"swiglu_limit": 1.0, "rms_norm_eps": 1e-4, "hc_eps": 1e-3, "balance_coef": 0.5}

# Values of two float64 programs of one formula: a layer is a chain of some tens of operations, each rounding by 1.1e-16
# of its tensor, over sums of at most a few hundred terms. Seen: 2e-15. Gradients are sums that may cancel; they keep
# the wider bound that the harness has for oracles.
SAME_FORMULAS_F64 = 1e-12


def config_of(text: str) -> V4Config:
    """A configuration text of the harness, or "three_kinds", with the constants above where the text has no others."""
    config = presets.three_kinds() if text == "three_kinds" else config_from_text(text)
    return replace(config, **{name: value for name, value in _TELLING.items() if f",{name}=" not in text})


@lru_cache
def model_of(text: str) -> V4Model:
    """The float64 model of a configuration text, with random weights everywhere; shared, so not to be changed."""
    return build(config_of(text), torch.float64, 3).model


def sample_of(config: V4Config, *, length: int) -> list[int]:
    """Random token ids that depend on the length alone."""
    source = torch.Generator().manual_seed(length)
    ids: list[int] = torch.randint(config.vocab_size, (length,), generator=source).tolist()
    return ids


def spread_pack(samples: Sequence[list[int]], *, masks: Sequence[list[bool]] | None = None) -> Pack:
    """The samples in one pack, the n-th followed by n tokens of padding, and more padding behind.

    Padding holds a real id and is marked as supervised: it must be known from the layout.
    """
    lengths = [len(sample) for sample in samples]
    slots = [length + number for number, length in enumerate(lengths)]
    layout = PackLayout.from_lengths(lengths, slots=slots, total=sum(slots) + 5)
    tokens, supervised = torch.full((layout.total,), 7), torch.ones(layout.total, dtype=torch.bool)
    tokens[layout.real] = torch.tensor([token for sample in samples for token in sample])
    if masks is not None:
        supervised[layout.real] = torch.tensor([flag for mask in masks for flag in mask])
    return Pack(tokens, layout=layout, supervised=supervised)


@dataclass
class Agreement:
    """The largest relative error of each quantity compared in one case, and whatever was beyond its bound."""

    kind: str
    case: str
    errors: dict[str, float] = field(default_factory=dict)
    beyond: list[str] = field(default_factory=list)

    def compare(
        self,
        quantity: str,
        got: Tensor,
        expected: Tensor | npt.NDArray[np.float64] | float,
        *,
        bound: float,
        floor: float = 0.0,
        where: str = "",
    ) -> None:
        """Notes the error relative to the largest expected magnitude, or to `floor` if that is larger."""
        error = relative_error(got, torch.as_tensor(expected, dtype=torch.float64), floor=floor)
        self.errors[quantity] = max(error, self.errors.get(quantity, 0.0))
        if not error <= bound:
            self.beyond.append(" ".join(filter(None, (quantity, where))) + f" {error:.1e} > {bound:.1e}")

    @property
    def line(self) -> str:
        """Kind, case and the numbers."""
        return f"{self.kind}, {self.case}: " + ", ".join(f"{name} {error:.1e}" for name, error in self.errors.items())


class AgreementTable:
    """Every agreement of a module, with the largest error of each quantity by kind."""

    def __init__(self) -> None:
        self.largest: dict[str, dict[str, float]] = {}

    def settle(self, agreement: Agreement, record_property: Record) -> None:
        """Prints and records the line of numbers, then fails if anything was beyond its bound."""
        print(agreement.line)
        record_property("agreement", agreement.line)
        largest = self.largest.setdefault(agreement.kind, {})
        for quantity, error in agreement.errors.items():
            largest[quantity] = max(error, largest.get(quantity, 0.0))
        assert not agreement.beyond, f"{agreement.kind}, {agreement.case}: " + "; ".join(agreement.beyond)

    def text(self) -> str:
        """One line a kind."""
        return "\n".join(Agreement(kind, "largest of all cases", errors).line for kind, errors in self.largest.items())
