"""The fast twin of `v4model.ops.swiglu.clamped_swiglu`, and the same for gate and up side by side in one tensor."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from v4model.ops.fast.kernels import rowwise


def clamped_swiglu(gate: Tensor, up: Tensor, *, limit: float) -> Tensor:
    """As the plain twin, rounded once at the end."""
    out: Tensor = _SwiGLU.apply(gate, up, limit)  # type: ignore[no-untyped-call]
    return out


def clamped_swiglu_pair(gate_up: Tensor, *, limit: float) -> Tensor:
    """gate_up [N, 2I], gate first -> [N, I]; the gradient is one tensor too."""
    out: Tensor = _SwiGLUPair.apply(gate_up, limit)  # type: ignore[no-untyped-call]
    return out


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, limit: float) -> Tensor:
        shape = gate.shape
        gate, up = gate.reshape(-1, shape[-1]), up.reshape(-1, shape[-1])
        ctx.save_for_backward(gate, up)
        ctx.limit, ctx.shape = limit, shape
        return _forward(gate, up, limit).view(shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        gate, up = ctx.saved_tensors
        dgate, dup = (torch.empty(gate.shape, dtype=gate.dtype, device=gate.device) for _ in range(2))
        _backward(gate, up, grads[0], dgate, dup, limit=ctx.limit)
        return dgate.view(ctx.shape), dup.view(ctx.shape), None


class _SwiGLUPair(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor, limit: float) -> Tensor:
        ctx.save_for_backward(gate_up)
        ctx.limit = limit
        gate, up = gate_up.chunk(2, dim=1)
        return _forward(gate, up, limit)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (gate_up,) = ctx.saved_tensors
        dgate_up = torch.empty_like(gate_up)
        gate, up = gate_up.chunk(2, dim=1)
        dgate, dup = dgate_up.chunk(2, dim=1)
        _backward(gate, up, grads[0], dgate, dup, limit=ctx.limit)
        return dgate_up, None


def _forward(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    gate, up = _rows_of(gate), _rows_of(up)
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    if out.numel():
        rowwise.swiglu_forward[_grid(gate)](
            gate, up, out, *gate.shape, gate.stride(0), up.stride(0), limit, BLOCK_R=_ROWS, BLOCK_C=_CHANNELS
        )
    return out


def _backward(gate: Tensor, up: Tensor, dout: Tensor, dgate: Tensor, dup: Tensor, *, limit: float) -> None:
    gate, up = _rows_of(gate), _rows_of(up)
    if gate.numel():
        rowwise.swiglu_backward[_grid(gate)](
            gate, up, dout.reshape(gate.shape).contiguous(), dgate, dup, *gate.shape,
            gate.stride(0), up.stride(0), dgate.stride(0), dup.stride(0), limit, BLOCK_R=_ROWS, BLOCK_C=_CHANNELS,
        )  # fmt: skip


_ROWS, _CHANNELS = 4, 512


def _grid(x: Tensor) -> tuple[int, int]:
    return triton.cdiv(x.shape[0], _ROWS), triton.cdiv(x.shape[1], _CHANNELS)


def _rows_of(x: Tensor) -> Tensor:
    return x if x.stride(1) == 1 else x.contiguous()
