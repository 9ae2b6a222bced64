"""The mesh on parallel_state: same order of ranks, same groups, made and found in one place."""

from __future__ import annotations

import warnings

import torch.distributed as dist

from v4model.errors import ConfigError
from v4model.exchange import Exchange, Ranks
from v4model.layers.share import Share
from v4model.parallel.groups import Mesh
from v4model.parallel.megatron.core import parallel_state
from v4model.parallel.processes import ProcessWire


def initialise(mesh: Mesh) -> None:
    """Make parallel_state's groups for a mesh, over torch.distributed's default group of mesh.world ranks; collective.

    Raises:
        ConfigError: a world of another size, or groups that are there already and not this mesh's.
    """
    if dist.get_world_size() != mesh.world:
        raise ConfigError(got=f"a world of {dist.get_world_size()} ranks", expected=f"{mesh.world}", where="the mesh")
    if parallel_state.is_initialized():
        _check_mesh(mesh)
        return
    with warnings.catch_warnings():
        # torch says it of names that megatron-core uses: no matter of the caller's.
        warnings.simplefilter("ignore")
        parallel_state.initialize_model_parallel(
            pipeline_model_parallel_size=mesh.pp,
            context_parallel_size=mesh.cp,
            expert_model_parallel_size=mesh.ep,
            expert_tensor_parallel_size=1,
            create_gloo_process_groups=False,
        )


def _check_mesh(mesh: Mesh) -> None:
    there = Mesh(
        cp=parallel_state.get_context_parallel_world_size(),
        dp=parallel_state.get_data_parallel_world_size(),
        pp=parallel_state.get_pipeline_model_parallel_world_size(),
        ep=parallel_state.get_expert_model_parallel_world_size(),
    )
    if there != mesh:
        raise ConfigError(got=f"groups of {there}", expected=f"{mesh}", where="parallel_state")


def ranks_and_share() -> tuple[Ranks, Share]:
    """The groups of parallel_state, and what this rank holds, when it is initialised; one rank otherwise.

    Raises:
        ConfigError: tensor parallelism.
    """
    if not parallel_state.is_initialized():
        return Ranks.one(), Share()
    tensor_ranks = parallel_state.get_tensor_model_parallel_world_size()
    if tensor_ranks > 1:
        # V4's dominant tensors have no head axis to cut.
        raise ConfigError(got=f"a tensor parallel size of {tensor_ranks}", expected="1", where="parallel_state")
    cp = Exchange(ProcessWire(parallel_state.get_context_parallel_group(), checked=False))
    ep = Exchange(ProcessWire(parallel_state.get_expert_model_parallel_group(), checked=False))
    share = Share(
        stage=parallel_state.get_pipeline_model_parallel_rank(),
        stages=parallel_state.get_pipeline_model_parallel_world_size(),
        expert_rank=ep.rank,
        expert_ranks=ep.ranks,
    )
    return Ranks(cp, ep), share
