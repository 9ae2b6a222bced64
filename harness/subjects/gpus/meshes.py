"""What is compared: ways to use so many ranks, two models, and packs of ragged real text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle, groupby

import torch

from harness.corpus import load_corpus
from v4model import Pack, V4Config, presets
from v4model.parallel.groups import Mesh

LEAST_PACKS = 4
"""Of a step; with more ranks as many as ranks, so that every replica has one."""


def widened() -> V4Config:
    """three_kinds with the real vocabulary and widths that fill a GPU's tiles."""
    return replace(
        presets.three_kinds(),
        vocab_size=129280,
        hidden_size=1024,
        num_attention_heads=16,
        head_dim=128,
        qk_rope_head_dim=32,
        q_lora_rank=256,
        o_lora_rank=128,
        index_head_dim=64,
        index_topk=512,
        n_routed_experts=16,
        moe_intermediate_size=512,
        fixed_shape_experts=False,
        initializer_range=0.03,
    )


def models() -> Mapping[str, V4Config]:
    """By name: one for GPUs, one for a CPU."""
    return {"widened": widened(), "tiny": presets.tiny()}


def meshes(gpus: int, config: V4Config) -> tuple[Mesh, ...]:
    """Context ranks, experts over replicas, experts over context ranks; two and three stages of all that is left.

    A stage of an even number of ranks has two context ranks that share the experts, and replicas of that. Stages that
    do not divide the ranks leave some idle: `Mesh.world` says how many are used.
    """
    found = [Mesh(cp=gpus), Mesh(dp=gpus, ep=gpus), Mesh(cp=gpus, ep=gpus)]
    for stages in (2, 3):
        of_stage = gpus // stages
        pair = 2 if of_stage % 2 == 0 else 1
        if of_stage:
            found.append(Mesh(pp=stages, dp=of_stage // pair, cp=pair, ep=pair))
    return tuple(
        mesh for mesh in found if config.n_routed_experts % mesh.ep == 0 and mesh.pp <= config.num_hidden_layers
    )


def by_world(found: Sequence[Mesh]) -> dict[int, tuple[Mesh, ...]]:
    """Meshes by how many ranks they use, most first."""
    ordered = sorted(found, key=lambda mesh: -mesh.world)
    return {world: tuple(group) for world, group in groupby(ordered, key=lambda mesh: mesh.world)}


def named(mesh: Mesh) -> str:
    """ "dp=1 pp=2 cp=2 ep=2"."""
    return f"dp={mesh.dp} pp={mesh.pp} cp={mesh.cp} ep={mesh.ep}"


def real_packs(gpus: int, config: V4Config, *, tokens: int) -> list[Pack]:
    """The packs of one step: whole samples of real text one after another until `tokens` are full, then padding.

    Ids are folded into a small vocabulary.
    """
    samples = cycle([sample for sample in load_corpus(None).samples if len(sample.tokens) <= tokens])
    packs = []
    for _ in range(max(gpus, LEAST_PACKS)):
        taken, flags, used = [], [], 0
        for sample in samples:
            if used + len(sample.tokens) > tokens:
                break
            taken.append(sample.tokens)
            flags.append(sample.supervised)
            used += len(sample.tokens)
        pack = Pack.from_samples(taken, supervised=flags, total=tokens)
        ids = torch.remainder(pack.tokens, config.vocab_size)
        packs.append(Pack(ids, layout=pack.layout, supervised=pack.supervised))
    return packs
