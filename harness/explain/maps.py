"""What depends on what, by changing token ids: every cell is the largest change of a result, 0 where no bit moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.properties.measure import row_differences, rows_of_samples
from harness.properties.perturb import Inputs, other_tokens

if TYPE_CHECKING:
    from harness.case import Case
    from harness.subjects.protocol import Observation, Subject
    from v4model import Pack


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenMap:
    """values [Q, S]: the change of the results at tokens `queries` under other ids at tokens `sources`, one at a time.

    depth: whose results. kind: "logits", or "nll", which also depends on the label.
    """

    values: Tensor
    queries: range
    sources: range
    depth: int
    kind: str

    def allowed(self, query: int, source: int) -> bool:
        """Whether a query may read a source of its own sample."""
        return source <= query + self.depth + (self.kind == "nll")


def sample_map(subject: Subject, case: Case, pack: Pack) -> Tensor:
    """[S, S + 1] by query's sample and source's: logits and nll of every depth, the last column is padding."""
    layout = pack.layout
    manner = other_tokens(case, pack, vocab_size=subject.config.vocab_size)
    before = Inputs(pack).observe(subject)
    samples = [rows_of_samples(layout, [sample]) for sample in range(layout.num_samples)]
    columns = []
    for marked in (*samples, ~layout.real):
        if not bool(marked.any()):
            columns.append(torch.zeros(len(samples), dtype=torch.float64))
            continue
        change = _change(manner.applied(marked).observe(subject), before)
        columns.append(torch.stack([change[rows].max() for rows in samples]))
    return torch.stack(columns, dim=1)


def _change(got: Observation, before: Observation) -> Tensor:
    """[T] float64: the largest change of a token's logits and nll at any depth."""
    changes = []
    for one, two in zip(got.depths, before.depths, strict=True):
        changes += [row_differences(one.values, two.values).double(), row_differences(one.nll, two.nll).double()]
    return torch.stack(changes).amax(dim=0)


def token_map(
    subject: Subject, case: Case, pack: Pack, *, queries: range, sources: range, depth: int, kind: str
) -> TokenMap:
    """The map of some tokens on some tokens; a forward pass a source."""
    manner = other_tokens(case, pack, vocab_size=subject.config.vocab_size)

    def table(run: Observation) -> Tensor:
        return (run.depths[depth].nll if kind == "nll" else run.depths[depth].values)[list(queries)]

    before = table(Inputs(pack).observe(subject))
    token = torch.arange(pack.layout.total)
    columns = [
        row_differences(table(manner.applied(token == source).observe(subject)), before).double() for source in sources
    ]
    return TokenMap(values=torch.stack(columns, dim=1), queries=queries, sources=sources, depth=depth, kind=kind)
