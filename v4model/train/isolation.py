"""The proof before the first step: on a real pack, no sample's hidden states have a gradient at another's tokens.

Asked by gradients because they need no second forward pass to compare with: a sum that leaves a neighbour out by
`where` or by an index has a gradient of exactly 0 there, in every dtype and whatever shape the experts' batches have.
"""

from __future__ import annotations

import torch
from torch import Tensor

from v4model.errors import PackError
from v4model.exchange import Ranks
from v4model.model import V4Model, V4Output
from v4model.pack import Pack, PackLayout
from v4model.pack.shard import shard_of


class IsolationError(PackError):
    """A sample that another one sees."""


def prove_isolation(model: V4Model, pack: Pack, *, ranks: Ranks, where: str) -> None:
    """Every second sample against the rest, both ways, at the trunk and at every MTP depth; collective over the ranks.

    Raises:
        IsolationError: the first token at which another sample has a gradient. On ranks every one raises, for the
            tokens that it owns or for another's.
    """
    plan = shard_of(pack.layout, rank=ranks.cp.rank, ranks=ranks.cp.ranks)
    own = slice(plan.start, plan.end)
    sample = plan.layout.sample[own].to(model.device)
    embeddings = model.embed(pack, ranks=ranks).detach().requires_grad_()
    out = model(pack, embeddings=embeddings, ranks=ranks)
    for parity in (0, 1):
        readers = (sample >= 0) & (sample % 2 == parity)
        reach = _reach(out, embeddings, readers=readers)
        seen = (reach != 0) & ~readers & (sample >= 0)
        total = ranks.cp.total(seen.sum(), where="isolation")
        if int(total):
            raise IsolationError(
                got=_seen(seen, plan.layout, first=plan.start, others=int(total), parity=parity),
                expected="a gradient of exactly 0",
                where=where,
            )


def _reach(out: V4Output, embeddings: Tensor, *, readers: Tensor) -> Tensor:
    """[n] the largest gradient at each own embedding from the readers' hidden states, of all ranks."""
    hiddens = [out.hidden, *(depth.hidden for depth in out.mtp)]
    source = torch.Generator().manual_seed(0)
    weights = []
    for hidden in hiddens:
        # A random projection: where every row's gradient is 0 its sum is, and elsewhere it does not cancel.
        projection = torch.randn(hidden.shape, generator=source).to(hidden)
        weights.append(torch.where(readers[:, None], projection, 0))
    (grad,) = torch.autograd.grad(hiddens, embeddings, grad_outputs=weights, retain_graph=True)
    return grad.abs().nan_to_num(nan=torch.inf).amax(dim=1)


def _seen(seen: Tensor, layout: PackLayout, *, first: int, others: int, parity: int) -> str:
    readers = "even" if parity == 0 else "odd"
    if not seen.any():
        return f"{others} tokens of another rank that samples of {readers} number see"
    token = first + int(seen.nonzero()[0])
    return f"a gradient from samples of {readers} number at {layout.where(token)}, and at {others - 1} more tokens"
