"""Several ranks against one, neither of which is exact: what each is held to, and the figures.

Rounding differs between the two, so both are compared with one rank in float64 on the same (rounded) weights, and
several may be at most twice as far from it as one is, in root mean square: nll, and gradients.

Weights behind an optimizer's step are not compared so. Adam's first step is lr * g / (|g| + epsilon): where g is of
the size of rounding it is a whole step of either sign, and one sign in a thousand is an error larger than that of any
wrong gradient. But the step is a function of the gradient, element by element. So the gradient is held to the bound
above, and the updated weights to that function in float64 of the ranks' own gradient, which is no accumulation and
leaves a few roundings; together they say what the weights are.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from harness.subjects.gpus.meshes import models, named, real_packs
from harness.subjects.gpus.step import Step, settings_of, step_on
from harness.tolerance import REORDERED_F64
from v4model import Pack
from v4model.parallel.groups import Mesh
from v4model.train.settings import TrainSettings

ALLOWED = 2.0
"""How many times the error of one rank that of several may be."""

UPDATE_ROUNDINGS = 16
"""Of the wide dtype, relative to |weight| + learning rate. AdamW rounds the decayed weight twice and the direction
about ten times (two moments, two corrections, root, epsilon, quotient, product, sum)."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One mesh in one dtype.

    nll and gradient errors: root mean square against float64, relative to that of what is compared. loss_difference: of
    the step's loss, several against one, relative. weight_error: of the updated weight that is farthest from AdamW's
    formula on the ranks' own gradient, in parts of what rounding allows (1). norm_error: of the gradient's norm as the
    engine gives it, against that of the joined gradients. disagreeing: what ranks hold copies of with other bits.
    """

    mesh: str
    dtype: str
    tokens: int
    samples: int
    nll_one: float
    nll_several: float
    gradient_one: float
    gradient_several: float
    loss_difference: float
    weight_error: float
    norm_error: float
    disagreeing: tuple[str, ...]
    sent_cp_bytes: int
    sent_ep_bytes: int
    step_seconds: float

    @property
    def holds(self) -> bool:
        """Whether all of it is within its bounds; a NaN is not."""
        return (
            self.nll_several <= ALLOWED * self.nll_one
            and self.gradient_several <= ALLOWED * self.gradient_one
            and self.weight_error <= 1.0
            and self.norm_error <= REORDERED_F64
            and not self.disagreeing
        )

    def to_json(self) -> dict[str, Any]:
        """Every field, and whether it holds."""
        return asdict(self) | {"holds": self.holds}

    def sentence(self) -> str:
        """A line to be printed."""
        copies = f", COPIES DIFFER: {', '.join(self.disagreeing[:3])}" if self.disagreeing else ""
        return (
            f"{'holds' if self.holds else 'FAILS'} {self.dtype:<8} {self.mesh}: nll {self.nll_several:.2e} "
            f"(one rank {self.nll_one:.2e}), gradients {self.gradient_several:.2e} (one rank {self.gradient_one:.2e}), "
            f"weights {self.weight_error:.2f} of the bound, norm {self.norm_error:.0e}, loss differs by "
            f"{self.loss_difference:.1e}, {self.step_seconds:.2f} s a step{copies}"
        )


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What ranks are told: `dtype` by torch's name, `tokens` of each pack, and how many packs follow from `gpus`."""

    model: str
    dtype: str
    gpus: int
    tokens: int
    device: str


def compare_here(asked: Asked, mesh: Mesh) -> Comparison | None:
    """One rank's part of a comparison; the row on rank 0, None elsewhere.

    Collective, in a world of as many processes as the mesh has ranks. The references are kept for the next mesh.
    """
    dtype, packs = getattr(torch, asked.dtype), _packs(asked)
    one = exact = None
    if dist.get_rank() == 0:
        exact, one = _references(asked)
    dist.barrier()
    settings = settings_of(models()[asked.model], mesh, dtype=dtype, packs=len(packs))
    several = step_on(settings, packs, rounded=dtype, device=asked.device)
    if several is None or exact is None or one is None:
        return None
    nll_one, gradient_one = errors(one, exact)
    nll_several, gradient_several = errors(several, exact)
    return Comparison(
        mesh=named(mesh),
        dtype=asked.dtype,
        tokens=sum(pack.layout.real_tokens for pack in packs),
        samples=sum(pack.layout.num_samples for pack in packs),
        nll_one=nll_one,
        nll_several=nll_several,
        gradient_one=gradient_one,
        gradient_several=gradient_several,
        loss_difference=abs(several.loss - one.loss) / abs(one.loss),
        weight_error=weight_error(several, settings),
        norm_error=abs(several.grad_norm / norm_of(several) - 1),
        disagreeing=several.disagreeing,
        sent_cp_bytes=several.sent_bytes[0],
        sent_ep_bytes=several.sent_bytes[1],
        step_seconds=several.seconds,
    )


@lru_cache(maxsize=1)
def _references(asked: Asked) -> tuple[Step, Step]:
    """One rank in float64, and in the dtype, on the same weights."""
    dtype, packs = getattr(torch, asked.dtype), _packs(asked)
    found = []
    for each in (torch.float64, dtype):
        settings = settings_of(models()[asked.model], Mesh(), dtype=each, packs=len(packs))
        step = step_on(settings, packs, rounded=dtype, device=asked.device)
        assert step is not None
        found.append(step)
    return found[0], found[1]


def _packs(asked: Asked) -> list[Pack]:
    return real_packs(asked.gpus, models()[asked.model], tokens=asked.tokens)


def errors(got: Step, reference: Step) -> tuple[float, float]:
    """Relative root mean square error of nll, and of all gradients together."""
    nll = _rms(got.nll - reference.nll) / _rms(reference.nll)
    difference = [(got.gradients[name].double() - grad).flatten() for name, grad in reference.gradients.items()]
    whole = torch.cat([grad.flatten() for grad in reference.gradients.values()])
    return nll, _rms(torch.cat(difference)) / _rms(whole)


def weight_error(step: Step, settings: TrainSettings) -> float:
    """The largest distance of an updated weight from AdamW's first step on the step's own gradient, of its bound.

    NaN if any weight is, or was not there.
    """
    assert settings.clip_norm is not None
    scale = min(1.0, settings.clip_norm / norm_of(step))
    rate, unit = settings.learning_rate_at(0), torch.finfo(settings.wide_dtype).eps / 2
    largest = 0.0
    for name, before in step.before.items():
        wanted = adamw(before.double(), step.gradients[name].double() * scale, settings=settings)
        allowed = UPDATE_ROUNDINGS * unit * (before.double().abs() + rate)
        share = ((step.after[name].double() - wanted).abs() / allowed).max()
        # Python's max would drop a NaN.
        largest = float(torch.maximum(torch.tensor(largest, dtype=torch.float64), share))
    return largest


def adamw(weight: Tensor, grad: Tensor, *, settings: TrainSettings) -> Tensor:
    """AdamW's first step: both moments, corrected, are the gradient and its square, and the betas cancel."""
    rate = settings.learning_rate_at(0)
    decay = settings.weight_decay if weight.ndim > 1 else 0.0
    return weight * (1 - rate * decay) - rate * grad / (grad.abs() + settings.epsilon)


def norm_of(step: Step) -> float:
    """L2 norm of all gradients, in float64."""
    return math.sqrt(sum(float(grad.double().square().sum()) for grad in step.gradients.values()))


def _rms(x: Tensor) -> float:
    return math.sqrt(float(x.square().mean()))
