"""E1: ranks own tokens in zig-zag order, all else takes them for contiguous (volcengine/verl#7221).

Mechanism: of a stream cut into 2C chunks rank r gets chunks r and 2C - 1 - r, ids and loss mask, as causal attention is
balanced. Its layout, windows, halos and positions are those of the contiguous shard. The plan itself refuses to be
asked for another order than 'contiguous'; this is a sampler that never asked.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model import Pack, V4Config
from v4model.exchange import Ranks
from v4model.layers.context import PackContext, context_of
from v4model.model import model as model_module
from v4model.pack.shard import shard_of

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def zig_zag(*, size: int, ranks: int) -> Tensor:
    """[ranks * size]: which token of the stream each rank holds at each place, rank by rank."""
    # Chunks of the first half are one longer where the size is odd, so that every rank gets one of either length.
    lengths = [(size + 1) // 2] * ranks + [size // 2] * ranks
    chunks = [range(end - length, end) for length, end in zip(lengths, accumulate(lengths), strict=True)]
    order = [token for rank in range(ranks) for chunk in (chunks[rank], chunks[-1 - rank]) for token in chunk]
    return torch.tensor(order)


def _context(
    pack: Pack,
    *,
    config: V4Config,
    ranks: Ranks,
    dtype: torch.dtype,
    device: torch.device,
    recompute: bool,
    recompute_within: bool,
) -> PackContext:
    if ranks.cp.ranks > 1:
        plan = shard_of(pack.layout, rank=ranks.cp.rank, ranks=ranks.cp.ranks)
        order = zig_zag(size=plan.size, ranks=plan.ranks)
        padded = (0, plan.layout.total - pack.layout.total)
        tokens, supervised = F.pad(pack.tokens, padded)[order], F.pad(pack.supervised, padded)[order]
        pack = Pack(tokens, layout=plan.layout, supervised=supervised)
    return context_of(
        pack,
        config=config,
        ranks=ranks,
        dtype=dtype,
        device=device,
        recompute=recompute,
        recompute_within=recompute_within,
    )


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, model_module, "context_of", _context)


FAULT = Fault(
    name="E1",
    title="ranks own tokens in zig-zag order, the code takes them for contiguous",
    reference="volcengine/verl#7221",
    expected="cp_matches_one_rank",
    kinds=KINDS,
    apply=_apply,
    ranks=(2, 4),
)
