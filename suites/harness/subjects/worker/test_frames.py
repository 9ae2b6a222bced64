"""Frames of the worker's protocol: what goes in comes out, to the bit, and anything else is told."""

from __future__ import annotations

import json
import math
import socket
import struct
from collections.abc import Iterator

import pytest
import torch

from harness.subjects.worker import frames


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected sockets."""
    one, two = socket.socketpair()
    for end in (one, two):
        end.settimeout(60)
    with one, two:
        yield one, two


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([[1.0, -0.0, math.nan], [math.inf, -math.inf, 5e-324]], dtype=torch.float64),
        torch.tensor([1.5, -2.5], dtype=torch.bfloat16),
        torch.tensor([1.5], dtype=torch.float32),
        torch.tensor([True, False]),
        torch.tensor([-1, 1 << 40]),
        torch.tensor(3.5, dtype=torch.float64),
        torch.zeros(0, 4),
        torch.arange(6).reshape(2, 3).T,
        torch.ones(2, requires_grad=True),
    ],
    ids=["float64", "bfloat16", "float32", "bool", "int64", "scalar", "empty", "transposed", "leaf"],
)
def test_a_tensor_arrives_as_it_left(ends: tuple[socket.socket, socket.socket], tensor: torch.Tensor) -> None:
    frames.send(ends[0], {"ask": "x"}, [tensor])
    header, (got,) = frames.receive(ends[1])
    assert header == {"ask": "x"}
    assert (got.dtype, got.shape, got.is_contiguous()) == (tensor.dtype, tensor.shape, True)
    sent = tensor.detach().contiguous()
    assert got.reshape(-1).view(torch.uint8).tolist() == sent.reshape(-1).view(torch.uint8).tolist()
    got.add_(1) if got.dtype != torch.bool else got.logical_not_()  # it owns its memory


def test_several_frames_follow_each_other(ends: tuple[socket.socket, socket.socket]) -> None:
    for number in range(3):
        frames.send(ends[0], {"number": number}, [torch.full((number,), number)] * number)
    for number in range(3):
        header, tensors = frames.receive(ends[1])
        assert (header["number"], len(tensors)) == (number, number)


def test_the_end_is_an_end(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[0].close()
    with pytest.raises(EOFError):
        frames.receive(ends[1])


def test_half_a_frame_is_an_end(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[0].sendall(struct.pack("<I", 100) + b"{")
    ends[0].close()
    with pytest.raises(EOFError):
        frames.receive(ends[1])


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"Traceback (most recent call last):\n", "a header of 1667330644 bytes"),
        (struct.pack("<I", 2) + b"[]", "a header that cannot be read"),
        (struct.pack("<I", 3) + b"{]}", "a header that cannot be read"),
        (struct.pack("<I", 2) + b"{}", "a header that cannot be read"),
    ],
)
def test_what_is_no_frame_is_told(ends: tuple[socket.socket, socket.socket], sent: bytes, words: str) -> None:
    ends[0].sendall(sent)
    with pytest.raises(frames.FrameError, match=words):
        frames.receive(ends[1])


def test_an_unknown_dtype_is_told(ends: tuple[socket.socket, socket.socket]) -> None:
    text = json.dumps({"tensors": [{"dtype": "complex64", "shape": [1]}]}).encode()
    ends[0].sendall(struct.pack("<I", len(text)) + text)
    with pytest.raises(frames.FrameError, match="KeyError: 'complex64'"):
        frames.receive(ends[1])
