"""Makes the indexers and routers of a `V4Model` take what another run chose, and tells what they chose among.

A choice among values that rounding cannot tell apart may fall either way, and whatever follows from it then differs by
far more than rounding. Told to choose alike, two runs can be compared as closely as sums in another order; and how much
a choice costs in the values of the run that was told it says whether rounding could have made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from harness.subjects.protocol import Choice
from harness.subjects.record import NONE, Record
from harness.subjects.recording import recorded_name
from v4model import V4Model
from v4model.layers.context import PackContext
from v4model.layers.indexer import Indexer
from v4model.layers.router import LearnedRouter, Routing
from v4model.ops.pick import index_scores

PICKS, EXPERTS = ".picks", ".experts"


@contextmanager
def choosing(model: V4Model, choices: Record, rows: Tensor) -> Iterator[Mapping[str, Choice]]:
    """As `Measurable.choosing`, of a model; fast operations or not."""
    made: dict[str, Choice] = {}
    rows = rows.to(model.device)
    with ExitStack() as stack:
        for path, module in model.named_modules():
            name = recorded_name(path)
            if isinstance(module, Indexer):
                told = choices[name + PICKS].to(model.device)
                choose = _picking(module, name, told, rows, made)
                stack.enter_context(mock.patch.object(module, "_choose", choose))
            elif isinstance(module, LearnedRouter):
                told = choices[name + EXPERTS].to(model.device)
                handle = module.register_forward_hook(_routing(name, told, rows, made))
                stack.callback(handle.remove)
        yield made


def _picking(indexer: Indexer, name: str, told: Tensor, rows: Tensor, made: dict[str, Choice]) -> Any:
    def choose(q: Tensor, gate: Tensor, keys: Tensor, *, context: PackContext) -> Tensor:
        own = type(indexer)._choose(indexer, q, gate, keys, context=context)
        pool = context.visibility.pools[indexer.ratio]
        candidates = pool.rows(0, len(q))
        with torch.no_grad():
            values = index_scores(q, gate, keys, rows=candidates)
        picks = _rows_of(told, pool.windows.first_token, total=context.layout.total)
        column = torch.where(picks >= 0, picks - pool.base[:, None], NONE)
        outside = (told != NONE) & ~((column >= 0) & (column < pool.visible[:, None]))
        absent = outside.any(1) | ((told != NONE).sum(1) != (own >= 0).sum(1))
        picks = torch.where((rows & ~absent)[:, None], picks, own)
        taken = _taken(torch.where(picks >= 0, picks - pool.base[:, None], NONE), columns=values.shape[1])
        made[name] = _choice(values, taken, rows, absent & rows)
        return picks

    return choose


def _routing(name: str, told: Tensor, rows: Tensor, made: dict[str, Choice]) -> Any:
    def route(router: LearnedRouter, _args: tuple[Any, ...], routing: Routing) -> Routing:
        values = routing.affinity.detach() + router.e_score_correction_bias
        experts = torch.where(rows[:, None], told, routing.experts)
        made[name] = _choice(values, _taken(experts, columns=values.shape[1]), rows, torch.zeros_like(rows))
        return router.weigh(routing.affinity, experts)

    return route


def _rows_of(told: Tensor, windows: Tensor, *, total: int) -> Tensor:
    """Pooled rows [T, k] by the first tokens [T, k] of their windows, -1 where there is no such window."""
    row_of = torch.full((total + 1,), NONE, device=told.device)
    row_of[windows] = torch.arange(len(windows), device=told.device)
    # The last place is read for what is no token.
    return row_of[torch.where(told >= 0, told, total)]


def _taken(columns_of: Tensor, *, columns: int) -> Tensor:
    """[T, columns] bool: the columns [T, k] of each row, -1 where none."""
    marks = torch.zeros(len(columns_of), columns + 1, dtype=torch.bool, device=columns_of.device)
    place = torch.where((columns_of >= 0) & (columns_of < columns), columns_of, columns)
    return marks.scatter_(1, place, torch.ones_like(place, dtype=torch.bool))[:, :columns]


def _choice(values: Tensor, taken: Tensor, told: Tensor, absent: Tensor) -> Choice:
    return Choice(values.double().cpu(), taken.cpu(), told.cpu(), absent.cpu())
