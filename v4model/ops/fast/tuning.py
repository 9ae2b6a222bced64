"""Sizes of blocks, warps and stages, by dtype; measured on one H200 (see LOG.md)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

BACKWARD_TOKENS = 2048
"""Tokens whose weights and contributions to picked rows exist at once in the backward pass."""


@dataclass(frozen=True)
class Block:
    """rows: keys at once; channels: of the result; split: tokens of a program, where tokens are split."""

    rows: int
    warps: int
    stages: int
    channels: int = 512
    split: int = 64


@dataclass(frozen=True, kw_only=True)
class AttendBlocks:
    """heads: that are the rows of one matrix product, the least that fills Hopper's warp groups; a block a kernel."""

    heads: int = 64
    forward: Block = field(default=Block(64, 8, 1))
    mass: Block = field(default=Block(64, 8, 1))
    queries: Block = field(default=Block(64, 8, 1))
    window: Block = field(default=Block(64, 4, 3, channels=128))
    visible: Block = field(default=Block(64, 4, 3, channels=128))
    picked: Block = field(default=Block(64, 4, 2, channels=256))

    @property
    def most(self) -> int:
        """The largest number of rows at once: what places of rows are rounded up to."""
        return max(self.forward.rows, self.mass.rows, self.queries.rows, self.window.rows, self.picked.rows)


_NARROW = AttendBlocks()
_WIDE = AttendBlocks(
    heads=16,
    forward=Block(16, 8, 1),
    mass=Block(16, 8, 1),
    queries=Block(16, 8, 1),
    window=Block(32, 8, 1, channels=128),
    visible=Block(32, 8, 1, channels=128),
    picked=Block(32, 8, 1, channels=128),
)


HOPPER_FORWARD = Block(64, 8, 2)
HOPPER_QUERIES = Block(64, 8, 1)
"""Of the kernels written for Hopper; stages: how many blocks of keys are held at once."""

SUM = Block(128, 4, 3, channels=64)
"""Of the sums over a row's picks: contributions and channels at once."""

SCORE = Block(rows=256, warps=8, stages=3, split=64)
"""Of the indexer's scores: windows and tokens at once."""


def index_blocks(dtype: torch.dtype) -> tuple[Block, Block]:
    """Of the scores of picked rows, forward and backward: picks at once. Not measured yet."""
    return (Block(32, 4, 1), Block(16, 4, 1)) if dtype == torch.float32 else (Block(64, 4, 2), Block(64, 8, 1))


def attend_blocks(dtype: torch.dtype) -> AttendBlocks:
    """Those of a dtype: in float32 a row takes twice the shared memory."""
    return _WIDE if dtype == torch.float32 else _NARROW
