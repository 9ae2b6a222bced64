"""One message of the worker's protocol: a JSON header and raw tensors, over a socket.

4 bytes     length of the header, unsigned, little-endian
header      JSON object, UTF-8; "tensors": [{"dtype": "float64", "shape": [5, 8]}, ...] says what follows
tensors     their bytes one after another, C order, in the machine's own byte order
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

_LENGTH = struct.Struct("<I")
_LONGEST_HEADER = 1 << 28
_DTYPES = {
    name: getattr(torch, name)
    for name in ("float64", "float32", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
}


class FrameError(Exception):
    """What came is no frame of this protocol."""


def send(channel: socket.socket, header: Mapping[str, Any], tensors: Sequence[Tensor] = ()) -> None:
    """Send one message; raises OSError if the other side is gone, TimeoutError if it does not read."""
    tensors = [tensor.detach().cpu().contiguous() for tensor in tensors]
    told = [{"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)} for tensor in tensors]
    text = json.dumps({**header, "tensors": told}).encode()
    channel.sendall(_LENGTH.pack(len(text)) + text)
    for tensor in tensors:
        if tensor.numel():
            channel.sendall(tensor.reshape(-1).view(torch.uint8).numpy().data)


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[Tensor]]:
    """The next message; raises EOFError at the end, TimeoutError past the channel's time, FrameError for anything else.

    Tensors own their memory.
    """
    (length,) = _LENGTH.unpack(_exactly(channel, _LENGTH.size))
    if length > _LONGEST_HEADER:
        raise FrameError(f"a header of {length} bytes")
    try:
        header = json.loads(_exactly(channel, length))
        told = [(_DTYPES[tensor["dtype"]], tuple(map(int, tensor["shape"]))) for tensor in header.pop("tensors")]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FrameError(f"a header that cannot be read ({type(error).__name__}: {error})") from error
    return header, [_tensor(channel, dtype, shape) for dtype, shape in told]


def _tensor(channel: socket.socket, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    tensor = torch.empty(shape, dtype=dtype)
    if tensor.numel():
        _fill(channel, tensor.reshape(-1).view(torch.uint8).numpy().data)
    return tensor


def _exactly(channel: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    _fill(channel, memoryview(buffer))
    return bytes(buffer)


def _fill(channel: socket.socket, buffer: memoryview) -> None:
    while len(buffer):
        got = channel.recv_into(buffer)
        if not got:
            raise EOFError("the other side has closed the connection")
        buffer = buffer[got:]
