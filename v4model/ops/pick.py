"""The indexer's scores and its choice of pooled rows (CSA, eq. 13-17)."""

from __future__ import annotations

import torch
from torch import Tensor

from v4model.ops.pool import gather_rows
from v4model.ops.precision import wide
from v4model.ops.twins import has_fast_twin


@has_fast_twin("index_scores")
def index_scores(q: Tensor, gate: Tensor, keys: Tensor, *, rows: Tensor) -> Tensor:
    """sum over heads of gate * ReLU(q . key), float32 or better (eq. 15-16).

    Args:
        q: [B, h, c]; gate: [B, h]; keys: [W, c]; rows: [B, C] rows of keys, -1 where none.

    Returns:
        [B, C]; -inf where the row is -1.
    """
    dots = wide(q) @ wide(gather_rows(keys, rows)).transpose(1, 2)
    scores = (wide(gate)[:, None, :] @ torch.relu(dots))[:, 0]
    return torch.where(rows >= 0, scores, float("-inf"))


def pick_rows(scores: Tensor, *, rows: Tensor, topk: int) -> Tensor:
    """The `topk` best rows a query; equal scores (+0 and -0 too) go to the earlier column, that is the lower window.

    Args:
        scores: [B, C], -inf where a row is not visible; rows: [B, C] ascending, -1 there.

    Returns:
        [B, topk] rows, best first, -1 behind the last.
    """
    # Adding 0 makes -0 of +0. Only a stable sort has a tie rule; topk's depends on the number of columns.
    order = torch.sort(scores + 0.0, dim=1, descending=True, stable=True).indices[:, :topk]
    picks = rows.gather(1, order)
    return torch.nn.functional.pad(picks, (0, topk - picks.shape[1]), value=-1)


def picks_divergence(scores: Tensor, mass: Tensor, *, picks: Tensor) -> Tensor:
    """KL(p || softmax of the scores over the picked rows), summed over queries with at least one picked row.

    Args:
        scores: [T, k], -inf where none is picked; mass: [T, k] attention probability of each pick summed over heads,
            renormalised here to p; picks: [T, k].

    Returns:
        scalar; its gradient reaches the scores only.
    """
    some = (picks >= 0).any(1)
    total = mass.sum(1, keepdim=True)
    # A query whose pooled rows all lost to the sink in this precision has no p; it teaches nothing.
    p = torch.where(total > 0, mass / total.clamp_min(torch.finfo(mass.dtype).tiny), 0).detach()
    # log_softmax over a row of -inf only is NaN, also backward: such rows are set to 0 before it, not after.
    log_q = torch.log_softmax(torch.where(some[:, None], scores, 0), dim=1)
    log_q = torch.where(picks >= 0, log_q, 0)
    return (torch.xlogy(p, p) - p * log_q).sum()
