"""A subject here whose model runs in a worker: gradients cross as cotangents of its outputs."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from harness.errors import HarnessError, UsageError
from harness.subjects.protocol import Observation
from harness.subjects.record import Record
from harness.subjects.worker import wire
from harness.subjects.worker.process import WorkerFailure, WorkerProcess, worker_of
from harness.subjects.worker.spec import WorkerSpec, read_spec
from v4model import Pack, V4Config

_numbers = itertools.count()


class RemoteFactory:
    """The factory of a worker's subjects; starts the worker, and another one when that has failed."""

    def __init__(self, spec: WorkerSpec) -> None:
        """Raises UsageError, with what the worker said, if it cannot be started or has no such factory."""
        self._spec = spec
        try:
            _, told = self._loaded()
        except (HarnessError, WorkerFailure) as error:
            got = error.got if isinstance(error, HarnessError) else str(error)
            expected = error.expected if isinstance(error, HarnessError) else "a worker that starts"
            raise UsageError(got=got, expected=expected, where=f"subject {spec.name}") from error
        self.unsupported: Mapping[str, str] = told["unsupported"]
        self.versions: Mapping[str, str] = told["versions"]
        self.__name__ = spec.factory

    def __call__(self, config: V4Config, dtype: torch.dtype, seed: int) -> RemoteSubject:
        """Build the subject in the worker."""
        worker, _ = self._loaded()
        request = {"config": wire.config_out(config), "dtype": _name(dtype), "seed": seed}
        number = next(_numbers)
        told, values = worker.ask("build", {**request, "number": number})
        kinds = {(True, True): _Both, (True, False): _Recording, (False, True): _Exporting}
        kind = kinds.get((told["records"], told["exports"]), RemoteSubject)
        return kind(worker, number, config, told, values)

    def _loaded(self) -> tuple[WorkerProcess, Mapping[str, Any]]:
        worker, _ = worker_of(self._spec)
        told, _ = worker.ask("load", {"factory": self._spec.factory})
        return worker, told


def remote_factory(name: str) -> RemoteFactory:
    """The factory that `worker:PYTHON:MODULE:FACTORY`, or a file, names; raises UsageError."""
    return RemoteFactory(read_spec(name))


class RemoteSubject:
    """Values and gradients of a subject in a worker, to the bit; parameters changed here are sent before they count."""

    def __init__(
        self, worker: WorkerProcess, number: int, config: V4Config, told: Mapping[str, Any], values: Sequence[Tensor]
    ) -> None:
        self.name: str = told["name"]
        self.config = config
        self.unsupported: Mapping[str, str] = told["unsupported"]
        self._worker, self._number = worker, number
        trainable = zip(told["parameters"], told["trainable"], values, strict=True)
        self._leaves = {name: value.requires_grad_(trains) for name, trains, value in trainable}
        self._sent = {name: leaf._version for name, leaf in self._leaves.items()}
        weakref.finalize(self, worker.release, number)

    def parameters(self) -> Mapping[str, Tensor]:
        """Copies of the worker's, leaves of the graph here."""
        return dict(self._leaves)

    def embeddings(self, pack: Pack) -> Tensor:
        """[T, D] as the worker's subject gives them."""
        told, tensors = wire.pack_out(pack)
        _, (found,) = self._worker.ask("embeddings", {"subject": self._number, "pack": told}, tensors)
        return found

    def observe(self, pack: Pack, *, embeddings: Tensor | None = None) -> Observation:
        """One forward pass in the worker; it keeps the graph for as long as something here can ask for gradients."""
        leaves = list(self._leaves.values())
        inputs = leaves if embeddings is None else [embeddings, *leaves]
        request, tensors = self._request(pack, embeddings)
        request["trained"] = [leaf.requires_grad for leaf in leaves]
        request["graph"] = None
        if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)):
            told, found = self._worker.ask("observe", request, tensors)
            return _observation(told, found)
        graph = _Graph(self._worker)
        request["graph"] = graph.number
        told = {}
        found = _Remote.apply(graph, request, tensors, told, *inputs)  # type: ignore[no-untyped-call]
        return _observation(told, found)

    def _request(self, pack: Pack, embeddings: Tensor | None) -> tuple[dict[str, Any], list[Tensor]]:
        told, tensors = wire.pack_out(pack)
        changed = [name for name, leaf in self._leaves.items() if leaf._version != self._sent[name]]
        self._sent |= {name: self._leaves[name]._version for name in changed}
        request = {
            "subject": self._number,
            "pack": told,
            "given": embeddings is not None,
            "differentiates": embeddings is not None and embeddings.requires_grad,
            "changed": changed,
        }
        given = [] if embeddings is None else [embeddings]
        return request, [*tensors, *given, *(self._leaves[name] for name in changed)]


class _Recording(RemoteSubject):
    def layer_outputs(self, pack: Pack, *, embeddings: Tensor | None = None) -> Record:
        """One forward pass, recorded in the worker."""
        told, tables = self._worker.ask("layer_outputs", *self._request(pack, embeddings))
        return dict(zip(told["names"], tables, strict=True))


class _Exporting(RemoteSubject):
    def export_weights(self) -> Mapping[str, npt.NDArray[Any]]:
        """Weights as the worker's subject exports them."""
        told, weights = self._worker.ask("export_weights", {"subject": self._number})
        return {name: weight.numpy() for name, weight in zip(told["names"], weights, strict=True)}


class _Both(_Recording, _Exporting):
    pass


class _Graph:
    """Names a graph that the worker keeps for as long as this object lives."""

    def __init__(self, worker: WorkerProcess) -> None:
        self.worker, self.number = worker, next(_numbers)
        weakref.finalize(self, worker.release, self.number)


class _Remote(torch.autograd.Function):
    """The outputs of a worker's forward pass; inputs are the embeddings, if given, and the parameters."""

    @staticmethod
    def forward(
        ctx: Any, graph: _Graph, request: dict[str, Any], tensors: list[Tensor], told: dict[str, Any],
        *inputs: Tensor,  # noqa: ARG004 - arrive here only to be part of the graph
    ) -> tuple[Tensor, ...]:  # fmt: skip
        answer, outputs = graph.worker.ask("observe", request, tensors)
        told |= answer
        reached = [*answer["differentiable"], *(False for _ in range(answer["depths"]))]
        ctx.graph, ctx.reached = graph, reached
        ctx.mark_non_differentiable(*(tensor for tensor, is_one in zip(outputs, reached, strict=True) if not is_one))
        # What nobody differentiates stays None, and the worker runs no backward pass through it.
        ctx.set_materialize_grads(False)
        return tuple(outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        asked = [number for number, grad in enumerate(grads) if grad is not None and ctx.reached[number]]
        wanted = [number for number, needed in enumerate(ctx.needs_input_grad[4:]) if needed]
        found: dict[int, Tensor] = {}
        if asked and wanted:
            request = {"graph": ctx.graph.number, "outputs": asked, "inputs": wanted}
            cotangents = [grad for number in asked if (grad := grads[number]) is not None]
            told, tensors = ctx.graph.worker.ask("backward", request, cotangents)
            found = dict(zip(itertools.compress(wanted, told["reached"]), tensors, strict=True))
        return (None, None, None, None, *(found.get(number) for number in range(len(ctx.needs_input_grad) - 4)))


def _observation(told: Mapping[str, Any], tensors: Sequence[Tensor]) -> Observation:
    depths = told["depths"]
    return wire.observation_in(told, tensors[: len(tensors) - depths], tensors[len(tensors) - depths :])


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
