"""Initial values of parameters and buffers, drawn on the host: the same on every device and for every share."""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch import Tensor, nn

from v4model.layers.experts import Experts
from v4model.layers.router import HashRouter


@torch.no_grad()
def initialise(model: nn.Module, *, std: float, seed: int) -> None:
    """Norm weights and mHC scales 1; sinks, biases and mHC bases 0; matrices normal with `std`; hash tables random.

    A hash table gives every token id distinct experts. Each tensor (each expert of a stack) has a generator of its own,
    seeded by its name, so that a rank which holds part of the model starts as the whole model does; threads draw.
    """
    with ThreadPoolExecutor() as pool:
        fill = partial(_fill, model=model, std=std, seed=seed)
        # A list, since an error in a thread is raised where its result is read.
        list(pool.map(fill, *zip(*model.named_parameters(), strict=True)))
    for name, buffer in model.named_buffers():
        router = model.get_submodule(name.rpartition(".")[0])
        if isinstance(router, HashRouter):
            draws = torch.rand(buffer.shape[0], router.num_experts, generator=_generator(name, seed=seed))
            buffer.copy_(draws.argsort(1)[:, : buffer.shape[1]])
        else:
            buffer.zero_()


@torch.no_grad()
def _fill(name: str, parameter: nn.Parameter, *, model: nn.Module, std: float, seed: int) -> None:
    module_name, _, leaf = name.rpartition(".")
    module = model.get_submodule(module_name)
    if isinstance(module, Experts):
        for number, weight in zip(module.held, parameter, strict=True):
            weight.copy_(_normal(weight, generator=_generator(f"{name}.{number}", seed=seed)) * std)
    elif module_name.endswith("norm") or leaf in ("scale", "hc_scale"):
        parameter.fill_(1)
    elif leaf in ("sinks", "position_bias", "base", "hc_base"):
        parameter.zero_()
    else:
        parameter.copy_(_normal(parameter, generator=_generator(name, seed=seed)) * std)


def _generator(name: str, *, seed: int) -> torch.Generator:
    # The CPU's generator reads 32 bits of a seed, so name and seed are hashed to that.
    return torch.Generator().manual_seed(zlib.crc32(f"{seed}/{name}".encode()))


def _normal(like: Tensor, *, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=torch.float32)
