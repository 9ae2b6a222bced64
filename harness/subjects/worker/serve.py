"""The worker's side: builds subjects, runs them, keeps their graphs until they are released."""

from __future__ import annotations

import os
import platform
import select
import socket
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.errors import HarnessError
from harness.subjects.protocol import Recorder, Subject, SubjectFactory, Unsupported
from harness.subjects.resolve import subject_factory
from harness.subjects.support import unsupported_by, versions_of
from harness.subjects.worker import frames, wire

_Answer = tuple[dict[str, Any], list[Tensor]]


def main(descriptor: int) -> None:
    """Serve requests on a connected socket until it closes, one after another."""
    channel = socket.socket(fileno=descriptor)
    threading.Thread(target=_leave_with_parent, args=(channel,), daemon=True).start()
    served = _Served()
    while True:
        try:
            request, tensors = frames.receive(channel)
        except EOFError:
            return
        answer, found = _answered(served, request, tensors)
        frames.send(channel, answer, found)


def _answered(served: _Served, request: Mapping[str, Any], tensors: list[Tensor]) -> _Answer:
    try:
        return served.answer(request, tensors)
    except Exception as error:  # the subject is someone else's code: what it raises is the answer
        kind = "unsupported" if isinstance(error, Unsupported) else "raised"
        parts = [error.got, error.expected, error.where] if isinstance(error, HarnessError) else None
        return {
            "error": kind,
            "type": type(error).__name__,
            "message": str(error),
            "parts": parts,
            "trace": traceback.format_exc(),
        }, []


def _leave_with_parent(channel: socket.socket) -> None:
    """A worker that computes reads no socket, so a thread watches for the other side's end, however it comes."""
    poller = select.poll()
    poller.register(channel, 0)
    poller.poll()
    os._exit(1)


@dataclass(frozen=True, eq=False)
class _Graph:
    """A forward pass: its outputs, and what they may be differentiated by."""

    outputs: list[Tensor]
    inputs: list[Tensor]


class _Served:
    """What requests act on; subjects and graphs go by the numbers that the other side gave them."""

    def __init__(self) -> None:
        self._factory: SubjectFactory | None = None
        self._subjects: dict[int, Subject] = {}
        self._graphs: dict[int, _Graph] = {}

    def answer(self, request: Mapping[str, Any], tensors: list[Tensor]) -> _Answer:
        """The answer to one request; forgets first what the other side has released."""
        for number in request["release"]:
            self._subjects.pop(number, None)
            self._graphs.pop(number, None)
        handlers = {
            "load": self._load,
            "build": self._build,
            "embeddings": self._embeddings,
            "observe": self._observe,
            "backward": self._backward,
            "layer_outputs": self._layer_outputs,
            "export_weights": self._export_weights,
        }
        return handlers[request["ask"]](request, tensors)

    def _load(self, request: Mapping[str, Any], _: list[Tensor]) -> _Answer:
        self._factory = subject_factory(request["factory"])
        versions = {"python": platform.python_version(), "torch": str(torch.__version__), **versions_of(self._factory)}
        return {
            "protocol": wire.PROTOCOL,
            "unsupported": dict(unsupported_by(self._factory)),
            "versions": versions,
        }, []

    def _build(self, request: Mapping[str, Any], _: list[Tensor]) -> _Answer:
        assert self._factory is not None, "load comes first"
        config = wire.config_in(request["config"])
        subject = self._factory(config, getattr(torch, request["dtype"]), request["seed"])
        self._subjects[request["number"]] = subject
        parameters = subject.parameters()
        return {
            "name": subject.name,
            "unsupported": dict(unsupported_by(subject)),
            "parameters": list(parameters),
            "trainable": [leaf.requires_grad for leaf in parameters.values()],
            "records": isinstance(subject, Recorder),
            "exports": hasattr(subject, "export_weights"),
        }, list(parameters.values())

    def _embeddings(self, request: Mapping[str, Any], tensors: list[Tensor]) -> _Answer:
        return {}, [self._subjects[request["subject"]].embeddings(wire.pack_in(request["pack"], *tensors))]

    def _observe(self, request: Mapping[str, Any], tensors: list[Tensor]) -> _Answer:
        subject = self._subjects[request["subject"]]
        pack, embeddings, leaves = self._inputs(subject, request, tensors)
        trained = dict(zip(leaves, request["trained"], strict=True))
        with torch.set_grad_enabled(request["graph"] is not None), _trained(leaves, trained):
            told, outputs, valid = wire.observation_out(subject.observe(pack, embeddings=embeddings))
        if request["graph"] is not None:
            given = [] if embeddings is None else [embeddings]
            self._graphs[request["graph"]] = _Graph(outputs, [*given, *leaves.values()])
        return {**told, "differentiable": [tensor.requires_grad for tensor in outputs]}, [*outputs, *valid]

    def _inputs(
        self, subject: Subject, request: Mapping[str, Any], tensors: list[Tensor]
    ) -> tuple[Any, Tensor | None, dict[str, Tensor]]:
        """The pack, the embeddings as a leaf, and the parameters with the values that have changed there."""
        tokens, supervised, *rest = tensors
        pack = wire.pack_in(request["pack"], tokens, supervised)
        embeddings = rest.pop(0).requires_grad_(request["differentiates"]) if request["given"] else None
        leaves = dict(subject.parameters())
        with torch.no_grad():
            for name, value in zip(request.get("changed", ()), rest, strict=True):
                leaves[name].copy_(value)
        return pack, embeddings, leaves

    def _backward(self, request: Mapping[str, Any], tensors: list[Tensor]) -> _Answer:
        graph = self._graphs[request["graph"]]
        found = torch.autograd.grad(
            [graph.outputs[number] for number in request["outputs"]],
            [graph.inputs[number] for number in request["inputs"]],
            grad_outputs=tensors,
            retain_graph=True,
            allow_unused=True,
        )
        return {"reached": [grad is not None for grad in found]}, [grad for grad in found if grad is not None]

    def _layer_outputs(self, request: Mapping[str, Any], tensors: list[Tensor]) -> _Answer:
        subject = self._subjects[request["subject"]]
        assert isinstance(subject, Recorder)
        pack, embeddings, _ = self._inputs(subject, request, tensors)
        record = subject.layer_outputs(pack, embeddings=embeddings)
        return {"names": list(record)}, list(record.values())

    def _export_weights(self, request: Mapping[str, Any], _: list[Tensor]) -> _Answer:
        weights = self._subjects[request["subject"]].export_weights()  # type: ignore[attr-defined]  # told by `build`
        return {"names": list(weights)}, [torch.from_numpy(weight) for weight in weights.values()]


@contextmanager
def _trained(leaves: Mapping[str, Tensor], trained: Mapping[str, bool]) -> Iterator[None]:
    """Within, the parameters ask for gradients as they do on the other side."""
    before = {name: leaf.requires_grad for name, leaf in leaves.items()}
    for name, leaf in leaves.items():
        leaf.requires_grad = trained[name]
    try:
        yield
    finally:
        for name, leaf in leaves.items():
            leaf.requires_grad = before[name]
