"""Pipeline: stages run the micro-batches of a step forward, then backward; streams travel one way, gradients back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from v4model.exchange import Pipe, Ranks
from v4model.model.model import StageOutput, V4Model
from v4model.pack.collate import Pack
from v4model.pack.counts import StepCounts
from v4model.pack.shard import shard_of

Kept = TypeVar("Kept")


class NoPipe:
    """The pipe of a model in one stage, which has nobody to send to."""

    def send(self, x: Tensor, *, to_stage: int) -> None:
        raise AssertionError(f"one stage sends {list(x.shape)} to stage {to_stage}")

    def receive(self, like: Tensor, *, from_stage: int) -> Tensor:
        raise AssertionError(f"one stage receives {list(like.shape)} from stage {from_stage}")


def run_step(
    model: V4Model, packs: Sequence[Pack], *, ranks: Ranks, pipe: Pipe, counts: StepCounts, logits: bool = False
) -> list[StageOutput]:
    """`run_step_keeping` the whole output of every micro-batch."""
    return run_step_keeping(
        model, packs, ranks=ranks, pipe=pipe, counts=counts, logits=logits, keep=lambda output: output
    )


def run_step_keeping(
    model: V4Model,
    packs: Sequence[Pack],
    *,
    ranks: Ranks,
    pipe: Pipe,
    counts: StepCounts,
    keep: Callable[[StageOutput], Kept],
    logits: bool = False,
) -> list[Kept]:
    """Forward and backward of this rank's share over the micro-batches of a step.

    Gradients are added to the parameters' `.grad`; what they still lack is the sum over the mesh's groups. In a
    pipeline all forward passes come before the first backward one, and backward goes from the last micro-batch to the
    first; one stage runs a micro-batch forward and backward before the next.

    Args:
        packs: the replica's micro-batches, the same on all its ranks and stages.
        counts: of the whole step: all micro-batches of all replicas.
        keep: what to keep of the output of a micro-batch, which holds its intermediate values.

    Returns:
        What was kept of each micro-batch; the losses in the outputs add up over stages, micro-batches and replicas.
    """
    share = model.share
    is_alone = share.is_first and share.is_last
    runs: list[tuple[Tensor | None, StageOutput]] = []
    kept = []
    for pack in packs:
        streams = None if share.is_first else _receive_streams(model, pack, ranks=ranks, pipe=pipe)
        out = model.forward_stage(pack, streams=streams, logits=logits and share.is_last, ranks=ranks, counts=counts)
        kept.append(keep(out))
        if is_alone:
            _backward(streams, out, model=model, pipe=pipe)
            continue
        if not share.is_last:
            pipe.send(out.streams, to_stage=share.stage + 1)
        runs.append((streams, out))
    while runs:
        _backward(*runs.pop(), model=model, pipe=pipe)
    return kept


def _receive_streams(model: V4Model, pack: Pack, *, ranks: Ranks, pipe: Pipe) -> Tensor:
    config = model.config
    size = shard_of(pack.layout, rank=ranks.cp.rank, ranks=ranks.cp.ranks).size
    like = torch.empty(size, config.hc_mult, config.hidden_size, dtype=model.dtype, device=model.device)
    return pipe.receive(like, from_stage=model.share.stage - 1).requires_grad_()


def _backward(streams: Tensor | None, out: StageOutput, *, model: V4Model, pipe: Pipe) -> None:
    share = model.share
    # A stage whose layers are dense and hashed has no loss of its own (balance, KL).
    ends = [(out.loss, torch.ones_like(out.loss))] if out.loss.requires_grad else []
    if not share.is_last:
        ends.append((out.streams, pipe.receive(out.streams, from_stage=share.stage + 1)))
    torch.autograd.backward([end for end, _ in ends], [grad for _, grad in ends])
    if streams is not None:
        assert streams.grad is not None
        pipe.send(streams.grad, to_stage=share.stage - 1)
