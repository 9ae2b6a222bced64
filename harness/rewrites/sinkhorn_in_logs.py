"""Sinkhorn's normalisations subtract logarithms instead of dividing."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.rewrites.registry import Ran, Rewrite, rewritten
from v4model.layers import hyper

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _sinkhorn(x: Tensor, *, iterations: int, eps: float) -> Tensor:
    # Positive everywhere: a softmax to which eps was added.
    logs = x.log()
    for axis in (-2, *(-1, -2) * (iterations - 1)):
        logs = logs - torch.log(logs.logsumexp(axis, keepdim=True).exp() + eps)
    return logs.exp()


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, (hyper, "sinkhorn", _sinkhorn))


REWRITE = Rewrite(
    name="sinkhorn_in_logs",
    title="Sinkhorn runs on logarithms",
    apply=_apply,
)
