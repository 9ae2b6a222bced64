"""Where a leak enters: the first recorded module in which a row moved that may not move, and through which branch.

A subject may offer `layer_outputs`; without it the branch is "unknown" and the layer None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor

from harness.properties.measure import moved_rows, tokens_of

if TYPE_CHECKING:
    from harness.properties.perturb import Inputs
    from harness.subjects.protocol import Subject
    from harness.witness import Place
    from v4model import Pack, PackLayout, V4Config


@runtime_checkable
class Recorder(Protocol):
    """A subject that can tell what its modules put out."""

    def layer_outputs(self, pack: Pack, *, embeddings: Tensor | None = None) -> Mapping[str, Tensor]:
        """Outputs [T, ...] by module name, in the order of execution; pooled rows [W, ...] for compressors.

        Names: layers.{i}.{self_attn|mlp|attn_hc|ffn_hc|self_attn.compressor}, and mtp.{k}.{the same}.
        """
        ...


def locate(
    subject: Subject, *, before: Inputs, after: Inputs, source: Place, forbidden: Callable[[int], Tensor]
) -> tuple[str, str | None]:
    """Branch and layer of a leak, by comparing the two runs module by module.

    forbidden(depth) gives the rows ([T] bool) of a module of that depth (0 trunk) that may not depend on the source.
    """
    if not isinstance(subject, Recorder):
        return "unknown", None
    with torch.no_grad():
        old = subject.layer_outputs(before.pack, embeddings=before.embeddings)
        new = subject.layer_outputs(after.pack, embeddings=after.embeddings)
    layout = before.pack.layout
    moved_pool = False
    carriers = torch.zeros_like(layout.real)
    carriers[source.token] = True
    for name, output in new.items():
        if _is_pool(name):
            moved_pool = moved_pool or _foreign_row_moved(output, old[name], name, layout, subject.config, source)
            continue
        moved = moved_rows(output, old[name])
        blind = forbidden(_depth(name))
        if (moved & blind).any():
            branch = _branch(name, subject.config, moved & blind, blind, carriers, moved_pool=moved_pool)
            return branch, name
        carriers = carriers | moved
    return "unknown", None


def _is_pool(name: str) -> bool:
    return "compressor" in name.rsplit(".", 1)[-1]


def _depth(name: str) -> int:
    return int(name.split(".")[1]) + 1 if name.startswith("mtp.") else 0


def _layer(name: str, config: V4Config) -> int:
    number = int(name.split(".")[1])
    return config.num_hidden_layers + number if name.startswith("mtp.") else number


def _branch(name: str, config: V4Config, moved: Tensor, blind: Tensor, carriers: Tensor, *, moved_pool: bool) -> str:
    """Which part of a module read the source.

    moved: the rows of it that moved although they may not ([T] bool), out of `blind`. carriers: the rows that had moved
    before and might have been read.
    """
    if not name.endswith("self_attn"):
        return {"mlp": "router", "e_proj": "shift", "h_proj": "shift"}.get(name.rsplit(".", 1)[-1], "unknown")
    if config.kind(_layer(name, config)) == "dense":
        return "local"
    if moved_pool:
        return "pool"
    # Local tokens are at most window - 1 away; a row further from every carrier can only have picked a pooled row.
    distance = (tokens_of(blind)[:, None] - tokens_of(carriers)[None, :]).abs().amin(dim=1)
    near = distance < config.sliding_window
    moved_blind = moved[blind]
    if (moved_blind & ~near).any():
        return "picks"
    # Where all that are near moved, and none of those further away, the window is what they share.
    return "local" if moved_blind[near].all() and not near.all() else "local or pool"


def _foreign_row_moved(
    new: Tensor, old: Tensor, name: str, layout: PackLayout, config: V4Config, source: Place
) -> bool:
    """Whether a pooled row changed that may not depend on the source: one of another sample, or an earlier window."""
    ratio = config.compress_ratios[_layer(name, config)]
    rows = [(sample, window) for sample, length in enumerate(layout.lengths) for window in range(length // ratio)]
    if len(rows) != len(new) or not rows:
        return False
    own = source.position // ratio
    allowed = torch.tensor([sample == source.sample and window >= own for sample, window in rows])
    return bool((moved_rows(new, old) & ~allowed).any())
