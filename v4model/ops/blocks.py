"""Work on blocks of tokens, and work whose intermediate values are computed again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar, TypeVarTuple, Unpack

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Result = TypeVar("Result")
Inputs = TypeVarTuple("Inputs")

BLOCK_TOKENS = 8192
"""Tokens whose wide intermediate values exist at once. Gradients of weights add up over blocks in the model's dtype, so
that many small blocks would cost precision in bfloat16."""


def recomputed(function: Callable[[Unpack[Inputs]], Result], *inputs: *Inputs, when: bool) -> Result:
    """function(*inputs); with `when`, its intermediate values are dropped and computed again in the backward pass.

    The second time it runs as far as there is something to keep, which is the same place on all ranks: what the
    backward pass needs of a block last comes behind the block's last exchange. Every tensor that the function
    differentiates is one of the inputs or a parameter. May be nested.
    """
    if not (when and torch.is_grad_enabled()):
        return function(*inputs)
    result: Result = checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)
    return result


def blocks_of(*inputs: Tensor) -> Iterator[tuple[int, tuple[Tensor, ...]]]:
    """The first token of each block of `BLOCK_TOKENS`, and its rows of every input [T, ...]; at least one block."""
    # split, not slices: its backward pass joins the blocks' gradients, where a slice's would fill a tensor a block.
    for number, parts in enumerate(zip(*(x.split(BLOCK_TOKENS) for x in inputs), strict=True)):
        yield number * BLOCK_TOKENS, parts


def by_blocks(function: Callable[..., tuple[Tensor, ...]], *inputs: Tensor, recompute: bool) -> tuple[Tensor, ...]:
    """A function of tokens that are computed one by one: block after block of the inputs [T, ...], joined again."""
    outputs = [recomputed(function, *parts, when=recompute) for _, parts in blocks_of(*inputs)]
    return outputs[0] if len(outputs) == 1 else tuple(torch.cat(parts) for parts in zip(*outputs, strict=True))
