"""The model runs the samples of a pack from the last one on, and what it gives is put back in their order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest import mock

import torch
from torch import Tensor

from harness.faults.patching import model_of
from harness.rewrites.registry import Ran, Rewrite
from v4model import Pack, PackLayout, V4Output

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject
    from v4model.exchange import Ranks
    from v4model.pack.counts import StepCounts


def _reversed(layout: PackLayout) -> tuple[PackLayout, Tensor]:
    """The samples from the last one on, each in front of the padding behind it; and the old token at each new one."""
    ends = [*layout.starts[1:], layout.total]
    slots = list(zip(layout.starts, ends, strict=True))[::-1]
    order = torch.cat([torch.arange(layout.starts[0]), *(torch.arange(start, end) for start, end in slots)])
    sample = layout.sample[order]
    starts = tuple(int((sample == number).nonzero()[0]) for number in reversed(range(layout.num_samples)))
    return PackLayout(layout.lengths[::-1], starts, layout.total), order


def _put_back(out: V4Output, plan_layout: PackLayout, order: Tensor) -> V4Output:
    back = order.argsort()

    def own(rows: Tensor) -> Tensor:
        return rows[back]

    return replace(
        out,
        plan=replace(out.plan, layout=plan_layout),
        streams=own(out.streams),
        token_nll=own(out.token_nll),
        hidden=own(out.hidden),
        logits=None if out.logits is None else own(out.logits),
        mtp=tuple(
            replace(
                depth,
                hidden=own(depth.hidden),
                valid=own(depth.valid),
                token_nll=own(depth.token_nll),
                logits=None if depth.logits is None else own(depth.logits),
            )
            for depth in out.mtp
        ),
    )


@contextmanager
def _apply(subject: Subject) -> Iterator[Ran]:
    model, ran = model_of(subject), Ran()
    healthy = model.forward

    def forward(
        pack: Pack,
        *,
        logits: bool = False,
        embeddings: Tensor | None = None,
        ranks: Ranks | None = None,
        counts: StepCounts | None = None,
    ) -> V4Output:
        if ranks is not None:
            # Each rank gives the tokens that it owns of the pack as it is.
            return healthy(pack, logits=logits, embeddings=embeddings, ranks=ranks, counts=counts)
        ran.calls += 1
        layout, order = _reversed(pack.layout)
        moved = Pack(pack.tokens[order], layout=layout, supervised=pack.supervised[order])
        given = None if embeddings is None else embeddings[order]
        return _put_back(healthy(moved, logits=logits, embeddings=given, counts=counts), pack.layout, order)

    with mock.patch.object(model, "forward", forward):
        yield ran


REWRITE = Rewrite(name="samples_last_first", title="the samples of a pack run from the last one on", apply=_apply)
