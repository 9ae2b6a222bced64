"""How configurations, packs and observations travel: what is text goes into a header, what is a tensor follows it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from harness.subjects.protocol import Depth, Observation
from v4model import Pack, PackLayout, V4Config, Yarn

PROTOCOL = 1


def config_out(config: V4Config) -> dict[str, Any]:
    """A configuration as plain values."""
    return dataclasses.asdict(config)


def config_in(data: Mapping[str, Any]) -> V4Config:
    """Read what `config_out` wrote."""
    yarn = data["rope_scaling"]
    given = {"compress_ratios": tuple(data["compress_ratios"]), "rope_scaling": None if yarn is None else Yarn(**yarn)}
    return V4Config(**{**data, **given})


def pack_out(pack: Pack) -> tuple[dict[str, Any], list[Tensor]]:
    """A pack as plain values and two tensors [T], ids and mask."""
    layout = pack.layout
    told = {"lengths": list(layout.lengths), "starts": list(layout.starts), "total": layout.total}
    return told, [pack.tokens, pack.supervised]


def pack_in(data: Mapping[str, Any], tokens: Tensor, supervised: Tensor) -> Pack:
    """Read what `pack_out` wrote."""
    layout = PackLayout(tuple(data["lengths"]), tuple(data["starts"]), data["total"])
    return Pack(tokens, layout=layout, supervised=supervised)


def observation_out(seen: Observation) -> tuple[dict[str, Any], list[Tensor], list[Tensor]]:
    """An observation as plain values, the tensors that may carry a graph, and `valid` of each depth."""
    told = {
        "depths": len(seen.depths),
        "sums": list(seen.sums),
        "losses": list(seen.losses),
        "counts": {name: float(count) for name, count in seen.counts.items()},
    }
    outputs = [tensor for depth in seen.depths for tensor in (depth.values, depth.nll)]
    outputs += [*seen.sums.values(), *seen.losses.values()]
    return told, outputs, [depth.valid for depth in seen.depths]


def observation_in(data: Mapping[str, Any], outputs: Sequence[Tensor], valid: Sequence[Tensor]) -> Observation:
    """Read what `observation_out` wrote."""
    rest = iter(outputs)
    depths = tuple(Depth(values=next(rest), nll=next(rest), valid=own) for own in valid)
    sums = {name: next(rest) for name in data["sums"]}
    return Observation(
        depths=depths, sums=sums, counts=data["counts"], losses={name: next(rest) for name in data["losses"]}
    )
