"""Whether a fault does anything at all: one that changes nothing proves nothing when no property is violated by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from harness.properties import every_property
from harness.properties.measure import moved_rows
from harness.properties.runs import run_with_gradients

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from torch.autograd.graph import Node

    from harness.faults.registry import Fault
    from harness.subjects.protocol import Subject
    from v4model import Pack


def changed_by(fault: Fault, subject: Subject, pack: Pack) -> tuple[str, ...]:
    """Names of what is observed on a pack and the fault changes by at least one bit; empty if it does nothing."""
    healthy = observed(fault, subject, pack)
    with fault.apply(subject):
        faulty = observed(fault, subject, pack)
    return tuple(name for name in {**healthy, **faulty} if _differ(healthy.get(name), faulty.get(name)))


def observed(fault: Fault, subject: Subject, pack: Pack) -> Mapping[str, Tensor]:
    """What the property compares that is to catch the fault, by name; outputs of the model unless it says otherwise."""
    (expected,) = (prop for prop in every_property() if prop.name == fault.expected)
    return (expected.observed or outputs)(subject, pack)


def outputs(subject: Subject, pack: Pack) -> dict[str, Tensor]:
    """Logits and nll of every depth, every sum, count and loss, and every parameter's gradient, by name.

    Also whether the loss reaches the parameter at all: where it does not, the gradient is taken as 0.
    """
    run = run_with_gradients(subject, pack)
    found: dict[str, Tensor] = {}
    for depth, given in enumerate(run.observation.depths):
        found |= {f"logits of depth {depth}": given.values.detach(), f"nll of depth {depth}": given.nll.detach()}
    found |= {f"sum of {name}": value.detach() for name, value in run.observation.sums.items()}
    found |= {f"loss {name}": value.detach() for name, value in run.observation.losses.items()}
    found |= {
        f"count of {name}": torch.tensor(value, dtype=torch.float64) for name, value in run.observation.counts.items()
    }
    reached = _leaves_of(run.observation.losses["loss"])
    found |= {
        f"edge of {name}": torch.tensor(float(id(leaf) in reached)) for name, leaf in subject.parameters().items()
    }
    return found | {f"gradient of {name}": grad for name, grad in run.of_parameters.items()}


def _leaves_of(scalar: Tensor) -> set[int]:
    """The ids of the leaves that a graph ends in."""
    reached: set[int] = set()
    seen: set[Node] = set()
    nodes = [scalar.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (leaf := getattr(node, "variable", None)) is not None:
            reached.add(id(leaf))
        nodes += [behind for behind, _ in node.next_functions]
    return reached


def _differ(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None or one.shape != other.shape:
        return True
    return bool(moved_rows(one.reshape(-1), other.reshape(-1)).any())
