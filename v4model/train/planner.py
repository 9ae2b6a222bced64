"""Which ways to spread a model over a cluster are possible, which fit, and in which order to try them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from v4model.config import V4Config
from v4model.errors import ConfigError
from v4model.parallel.groups import Mesh
from v4model.train.memory import host_of, peak_of
from v4model.train.work import Parts, Work, ops_on_card

TIGHT = 0.9
"""Share of a card above which a layout is only listed with a warning."""
ALIKE = 1 - TIGHT
"""Share of a card by which peaks may differ and still count as equal: as much as has to be free anyway."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """nodes of `gpus` cards of `memory` bytes each, and `host_memory` bytes a node.

    Raises:
        ConfigError: a number below 1.
    """

    nodes: int
    gpus: int
    memory: float
    host_memory: float

    def __post_init__(self) -> None:
        for name in ("nodes", "gpus", "memory", "host_memory"):
            if not 1 <= getattr(self, name) < math.inf:
                raise ConfigError(got=f"{name} {getattr(self, name)}", expected="at least 1", where="cluster")

    @property
    def world(self) -> int:
        return self.nodes * self.gpus


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One way: the mesh, whether the optimizer is on the host, and the stage that holds most at its worst moment.

    host_bytes: of a node, for the optimizer state of its ranks.
    """

    mesh: Mesh
    offload: bool
    stage: int
    peak: Parts
    host_bytes: float
    share_of_card: float
    share_of_host: float

    @property
    def fits(self) -> bool:
        """Whether card and host have room."""
        return max(self.share_of_card, self.share_of_host) <= 1

    @property
    def is_tight(self) -> bool:
        """Whether little else may run on the card."""
        return self.share_of_card > TIGHT


@dataclass(frozen=True)
class Axis:
    """A way to cut the model: the sizes that are possible, and what bounds them."""

    name: str
    sizes: tuple[int, ...]
    why: str


@dataclass(frozen=True)
class Plan:
    """axes; layouts that fit, best first; closest: the one that needs least where none does."""

    axes: tuple[Axis, ...]
    layouts: tuple[Layout, ...]
    closest: Layout


def plan(
    config: V4Config,
    cluster: Cluster,
    *,
    window: int,
    longest: int | None = None,
    micro_batches: int | None = None,
    dtype: str = "bfloat16",
    engine: str = "megatron",
    ops: str | None = None,
) -> Plan:
    """All layouts of a cluster for packs of `window` tokens.

    Args:
        longest: tokens of the longest sample, the window by default.
        micro_batches: packs of a step on a replica; by default one for each stage, the fewest that give every stage
            something to do.
        engine: what trains, as `TrainSettings` names it; torch has no offload.
        ops: as `Work`; by default what runs on a card.

    Raises:
        ConfigError: a window without tokens, operations of another name, or no mesh at all for that number of cards.
    """
    if window < 1 or (longest is not None and not 1 <= longest <= window):
        got = f"window {window}, longest {longest}"
        raise ConfigError(got=got, expected="1 <= longest <= window", where="plan")
    found = []
    for mesh in _meshes(config, cluster):
        for offload in (0.0, 1.0) if engine == "megatron" else (0.0,):
            work = Work(
                tokens=-(-window // mesh.cp),
                longest=longest or window,
                micro_batches=micro_batches or mesh.pp,
                dtype=dtype,
                engine=engine,
                ops=ops or ops_on_card(dtype),
                replicas=mesh.stage_size,
                expert_replicas=mesh.stage_size // mesh.ep,
                offload=offload,
            )
            found.append(_layout(config, cluster, mesh=mesh, work=work))
    if not found:
        expected = f"a multiple of some pp * cp with pp <= {config.num_hidden_layers}"
        raise ConfigError(got=f"{cluster.world} cards", expected=expected, where="plan")
    fitting = [layout for layout in found if layout.fits]
    closest = min(found, key=lambda each: max(each.share_of_card, each.share_of_host))
    return Plan(_axes(config, cluster), tuple(_ranked(fitting)), closest)


def _meshes(config: V4Config, cluster: Cluster) -> Iterator[Mesh]:
    _, stages, context, experts = (axis.sizes for axis in _axes(config, cluster)[:4])
    for pp in stages:
        for cp in context:
            if cluster.world % (pp * cp):
                continue
            dp = cluster.world // (pp * cp)
            yield from (Mesh(pp=pp, cp=cp, dp=dp, ep=ep) for ep in experts if dp * cp % ep == 0)


def _axes(config: V4Config, cluster: Cluster) -> tuple[Axis, ...]:
    of_world, of_node = _divisors(cluster.world), _divisors(cluster.gpus)
    experts = config.n_routed_experts
    return (
        Axis("TP", (1,), "no head axis: one latent is key and value of all heads; streams and pooled rows have none"),
        Axis(
            "PP",
            tuple(size for size in of_world if size <= config.num_hidden_layers),
            f"at most {config.num_hidden_layers} stages, one for each layer of the trunk",
        ),
        Axis("CP", of_node, "inside a node: every layer sends halos and pooled rows"),
        Axis(
            "EP",
            tuple(size for size in of_node if experts % size == 0),
            f"inside a node, a divisor of {experts} experts and of the ranks of a stage",
        ),
        Axis("DP", of_world, "what PP and CP leave of the cards"),
    )


def _divisors(number: int) -> tuple[int, ...]:
    return tuple(size for size in range(1, number + 1) if number % size == 0)


def _layout(config: V4Config, cluster: Cluster, *, mesh: Mesh, work: Work) -> Layout:
    shares = [mesh.share(stage * mesh.stage_size) for stage in range(mesh.pp)]
    peaks = [peak_of(config, share=share, work=work) for share in shares]
    stage = max(range(mesh.pp), key=lambda number: peaks[number].total)
    host = max(host_of(config, share=share, work=work) for share in shares)
    return Layout(
        mesh=mesh,
        offload=work.offload > 0,
        stage=stage,
        peak=peaks[stage],
        host_bytes=host * cluster.gpus,
        share_of_card=peaks[stage].total / cluster.memory,
        share_of_host=host * cluster.gpus / cluster.host_memory,
    )


def _ranked(layouts: list[Layout]) -> Iterator[Layout]:
    """With room to spare first; then the optimizer on the card, few stages, little memory, few context ranks.

    Stages wait for each other, so that fewer are better. Peaks within `ALIKE` of the least are alike, and then fewer
    context ranks send less.
    """

    def coarse(layout: Layout) -> tuple[bool, bool, int]:
        return layout.is_tight, layout.offload, layout.mesh.pp

    for _, group in groupby(sorted(layouts, key=coarse), key=coarse):
        alike = sorted(group, key=lambda each: each.share_of_card)
        least = alike[0].share_of_card
        yield from sorted(
            alike,
            key=lambda each: (
                (0, each.mesh.cp, each.share_of_card)
                if each.share_of_card <= least + ALIKE
                else (1, 0, each.share_of_card)
            ),
        )
