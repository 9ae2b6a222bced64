"""What the model's unit tests share: layouts, packs, random weights, and visibility written token by token."""

from __future__ import annotations

import torch
from torch import Tensor

from v4model.config import V4Config
from v4model.model import V4Model
from v4model.pack import Pack, PackLayout

# Starts off every ratio, a length of 1, one below and above the window, no window at all, padding inside and behind.
LAYOUTS = {
    "one sample": PackLayout.single(37),
    "ragged": PackLayout.from_lengths([5, 33, 1, 17]),
    "tail padding": PackLayout.from_lengths([3, 9, 20], total=48),
    "slots": PackLayout.from_lengths([7, 1, 18, 4], slots=[8, 5, 18, 9], total=47),
    "no window": PackLayout.from_lengths([1, 3, 2], slots=[2, 3, 3], total=10),
    "padding only": PackLayout.from_lengths([], total=6),
}

BF16, FP32 = 2.0**-8, 2.0**-24  # one rounding, relative


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers that depend on the seed alone."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def leaf(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """`randn` that wants a gradient."""
    return randn(*shape, seed=seed, dtype=dtype).requires_grad_()


def random_pack(layout: PackLayout, *, vocab: int = 512, seed: int = 0, supervised: Tensor | None = None) -> Pack:
    """Random token ids everywhere, padding included."""
    tokens = torch.randint(vocab, (layout.total,), generator=torch.Generator().manual_seed(seed))
    return Pack(tokens, layout=layout, supervised=supervised)


def stirred(config: V4Config, *, dtype: torch.dtype = torch.float64, seed: int = 0) -> V4Model:
    """A model whose sinks, biases, norms and scales differ from their initial 0 and 1, so that each one matters."""
    model = V4Model(config, dtype=dtype, seed=seed)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            noise = randn(*parameter.shape, seed=seed + number, dtype=torch.float32)
            if parameter.ndim == 1 or torch.count_nonzero(parameter) == 0:
                parameter.add_(0.1 * noise)
        for name, buffer in model.named_buffers():
            if name.endswith("bias"):
                buffer.copy_(0.1 * randn(*buffer.shape, seed=seed + len(name)))
    return model


def gradients(model: V4Model) -> dict[str, Tensor]:
    """Each parameter's gradient by name; a parameter without one is an error."""
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    missing = [name for name, grad in found.items() if grad is None]
    assert not missing, f"no gradient: {missing}"
    return {name: grad for name, grad in found.items() if grad is not None}


def relative_error(got: Tensor, expected: Tensor, *, floor: float = 0.0) -> float:
    """Largest difference over the largest expected magnitude (at least `floor`)."""
    assert got.shape == expected.shape, (got.shape, expected.shape)
    if not got.numel():
        return 0.0
    got, expected = got.detach(), expected.detach()
    return float((got - expected).abs().max()) / max(float(expected.abs().max()), floor, 1e-300)


def sees_token(layout: PackLayout, *, window: int) -> Tensor:
    """[T, T] bool from the spec, one pair at a time: same sample and 0 <= i - j < window."""
    seen = torch.zeros(layout.total, layout.total, dtype=torch.bool)
    for start, length in zip(layout.starts, layout.lengths, strict=True):
        for i in range(length):
            for j in range(length):
                seen[start + i, start + j] = 0 <= i - j < window
    return seen


def sees_window(layout: PackLayout, *, ratio: int) -> Tensor:
    """[T, W] bool from the spec: window w of the query's own sample, visible iff w < (t + 1) // ratio."""
    windows = [
        (sample, index) for sample, length in enumerate(layout.lengths) for index in range(length // ratio)
    ]  # the remainder of a sample is in no window
    seen = torch.zeros(layout.total, len(windows), dtype=torch.bool)
    for sample, (start, length) in enumerate(zip(layout.starts, layout.lengths, strict=True)):
        for t in range(length):
            for row, (owner, index) in enumerate(windows):
                seen[start + t, row] = owner == sample and index < (t + 1) // ratio
    return seen
