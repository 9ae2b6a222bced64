"""Which choices of experts fit where only so many fit, and what of a routing is left then."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from v4model.layers.router import Routing


def first_come(places: Tensor, *, count: int, room: int) -> Tensor:
    """[T, k] bool: whether a choice is among the first `room` of its place; places [T, k] are numbered below count."""
    before = F.one_hot(places.flatten(), count).cumsum(0)
    number = before.gather(1, places.flatten()[:, None]).view_as(places)
    return number <= room


def kept(routing: Routing, fits: Tensor) -> Routing:
    """The routing whose other choices reach no expert: nothing is added for them, and no gradient returns."""
    return replace(routing, weights=torch.where(fits, routing.weights, 0))
