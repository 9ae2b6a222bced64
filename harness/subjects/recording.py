"""Recording of what the parts of `V4Model` read and put out, by hooks; `harness.subjects.record` names the tables.

Tables are on the host, whatever device the model is on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import get_ident
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from harness.subjects.record import NONE, OUTSIDE, block_of, leaf_of, widened
from v4model import V4Model
from v4model.layers.attention import Attention
from v4model.layers.context import PackContext
from v4model.layers.indexer import Indexer, Picked
from v4model.layers.router import LearnedRouter, Routing
from v4model.model.block import Block
from v4model.model.mtp import MTPDepth

_Tables: TypeAlias = dict[str, Tensor]
_Call: TypeAlias = tuple[nn.Module, tuple[Any, ...], Mapping[str, Any]]
"""A module with its positional and keyword arguments, as a planted fault has left them."""


class Recording:
    """Tables by name; ranks of one process are threads, and each has tables of its own."""

    def __init__(self) -> None:
        self._of_thread: dict[int, _Tables] = defaultdict(dict)

    @property
    def own(self) -> _Tables:
        """What was recorded on this thread."""
        return self._of_thread[get_ident()]


@contextmanager
def recording(model: V4Model) -> Iterator[Recording]:
    """Within, every forward pass of the model is recorded."""
    found = Recording()
    handles = []
    for path, module in model.named_modules():
        name = recorded_name(path)
        if not name.startswith(("layers.", "mtp.")):
            continue
        if isinstance(module, MTPDepth):
            handles.append(module.register_forward_pre_hook(_before(found, name), with_kwargs=True))
        elif isinstance(module, Block) or leaf_of(name) in _READERS:
            read = _READERS["block" if isinstance(module, Block) else leaf_of(name)]
            handles.append(module.register_forward_hook(_behind(found, name, read), with_kwargs=True))
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def recorded_name(path: str) -> str:
    """What a module of `V4Model` is called in records, by its path in the module tree."""
    return path.removeprefix("trunk.").replace(".block", "")


def _before(found: Recording, name: str) -> Any:
    def record(depth: MTPDepth, _args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        context: PackContext = kwargs["context"]
        source = context.ahead(depth.depth)
        found.own[f"{name}.e_proj.ahead"] = torch.where(source >= 0, source + context.plan.start, NONE)[:, None].cpu()

    return record


def _behind(found: Recording, name: str, read: Callable[[str, _Call, Any], _Tables]) -> Any:
    def record(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        tables = read(name, (module, args, kwargs), output)
        found.own.update({key: table.detach().cpu() for key, table in tables.items()})

    return record


def _output(name: str, _call: _Call, output: Any) -> _Tables:
    return {name: output[0] if isinstance(output, tuple) else output}


def _streams_between(name: str, call: _Call, output: Any) -> _Tables:
    """Of `ffn_hc`: it collapses the streams that the attention's mHC expanded."""
    return {f"{block_of(name)}.attn_hc.streams": call[1][0], name: output[0]}


def _streams(name: str, _call: _Call, output: Any) -> _Tables:
    return {f"{name}.ffn_hc.streams": output.streams}


def _shifted(name: str, call: _Call, _output: Any) -> _Tables:
    return {f"{block_of(name)}.e_proj.shifted": call[1][0]}


def _routing(name: str, call: _Call, routing: Routing) -> _Tables:
    tables = {f"{name}.affinity": routing.affinity}
    if isinstance(router := call[0], LearnedRouter):
        tables[f"{name}.choice"] = routing.affinity + router.e_score_correction_bias
    return {**tables, f"{name}.experts": routing.experts.sort(dim=1).values}


def _attention(name: str, call: _Call, output: Any) -> _Tables:
    context: PackContext = call[2]["context"]
    seen, queries = context.visibility, len(output.out)
    assert isinstance(call[0], Attention)
    ratio = call[0].ratio
    # A rank reads zeros for tokens that neither it nor its halo holds.
    local, held = seen.rows(0, queries), context.plan.left(call[0].reach).start
    tables = {f"{name}.local": torch.where(local >= held, local, NONE)}
    if ratio:
        windows = _windows(context, ratio)
        tables |= {f"{name}.windows": windows, f"{name}.visible": _named(seen.pools[ratio].rows(0, queries), windows)}
    return {**tables, name: output.out}


def _indexer(name: str, call: _Call, picked: Picked) -> _Tables:
    module, _, kwargs = call
    assert isinstance(module, Indexer)
    picks = _named(picked.picks, _windows(kwargs["context"], module.ratio))
    # In the order of the windows: that of the scores may turn by rounding. None stand behind all.
    order = torch.where(picks == NONE, torch.iinfo(picks.dtype).max, picks).argsort(dim=1, stable=True)
    scores = picked.scores.masked_fill(picks == NONE, 0.0).gather(1, order)
    missing = module.topk - picks.shape[1]
    return {
        f"{name}.picks": widened(picks.gather(1, order), module.topk),
        f"{name}.scores": torch.cat([scores, scores.new_zeros(len(scores), missing)], dim=1),
    }


def _windows(context: PackContext, ratio: int) -> Tensor:
    """[W] first token of the window of each pooled row, in the order in which the ranks' rows are gathered."""
    first = context.visibility.pools[ratio].windows.first_token
    return torch.cat([first[owned.start : owned.stop] for owned in context.plan.windows(ratio=ratio)])


def _named(rows: Tensor, windows: Tensor) -> Tensor:
    """Pooled rows by number, as first tokens of their windows."""
    if not len(windows):
        return torch.where(rows >= 0, OUTSIDE, NONE)
    inside = (rows >= 0) & (rows < len(windows))
    return torch.where(inside, windows[torch.where(inside, rows, 0)], torch.where(rows >= 0, OUTSIDE, NONE))


_READERS: Mapping[str, Callable[[str, _Call, Any], _Tables]] = {
    "attn_hc": _output,
    "self_attn": _attention,
    "compressor": _output,
    "indexer": _indexer,
    "ffn_hc": _streams_between,
    "gate": _routing,
    "mlp": _output,
    "block": _streams,
    "enorm": _shifted,
    "e_proj": _output,
}
