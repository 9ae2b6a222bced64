"""One attention for every layer kind: a query, the key rows it may see, one sink a head (section 2.3)."""

from __future__ import annotations

import torch
from torch import Tensor

from v4model.ops.pool import gather_rows
from v4model.ops.precision import wide
from v4model.ops.twins import has_fast_twin
from v4model.pack.visibility import Visibility


@has_fast_twin("attend")
def attend(
    q: Tensor,
    kv: Tensor,
    pool: Tensor,
    sinks: Tensor,
    *,
    visibility: Visibility,
    ratio: int,
    picks: Tensor | None,
    first_key: int,
    block_tokens: int,
    wants_mass: bool = True,
) -> tuple[Tensor, Tensor]:
    """Softmax over local tokens, pooled rows and the sink (value 0) together; the latent is both key and value.

    Args:
        q: [T, H, d]; kv: [N, d] of tokens from `first_key` on; pool: [W, d] of the whole pack; sinks: [H].
        picks: [T, k] pooled rows of the indexer (CSA), -1 where none; None for all visible rows.
        block_tokens: queries computed at once; bounds memory, changes nothing else.
        wants_mass: whether the probability of picks is read; if not, it is [T, 0].

    Returns:
        output [T, H, d]; with picks, also the probability of each summed over heads [T, k], detached, else [T, 0].
    """
    table = torch.cat([kv, pool])
    outputs, masses = [], []
    for start in range(0, q.shape[0], block_tokens):
        end = min(start + block_tokens, q.shape[0])
        rows = visibility.rows(start, end, ratio=ratio, picks=picks)
        rows = _in_table(rows, num_tokens=visibility.layout.total, first_key=first_key, num_keys=kv.shape[0])
        # Without picks nobody asks for the mass of pooled rows, and it would be [T, W].
        first_picked = visibility.window if picks is not None and wants_mass else rows.shape[1]
        out, mass = _attend_block(q[start:end], table, sinks, rows=rows, first_picked=first_picked)
        outputs.append(out)
        masses.append(mass)
    return torch.cat(outputs), torch.cat(masses)


def _in_table(rows: Tensor, *, num_tokens: int, first_key: int, num_keys: int) -> Tensor:
    """Key rows of the whole pack as rows of [keys at hand | pooled rows]; -1 stays."""
    tokens = torch.where(rows >= 0, rows - first_key, -1)
    return torch.where(rows >= num_tokens, rows - num_tokens + num_keys, tokens)


def _attend_block(q: Tensor, table: Tensor, sinks: Tensor, *, rows: Tensor, first_picked: int) -> tuple[Tensor, Tensor]:
    keys = gather_rows(table, rows)
    scores = wide(q @ keys.transpose(1, 2)) * q.shape[-1] ** -0.5
    scores = torch.where((rows >= 0)[:, None, :], scores, float("-inf"))
    scores = torch.cat([scores, sinks[None, :, None].expand(q.shape[0], -1, 1)], dim=-1)
    probability = torch.softmax(scores, dim=-1)[..., :-1]
    out = probability.to(q.dtype) @ keys
    return out, probability[..., first_picked:].detach().sum(1)
