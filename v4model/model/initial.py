"""Initial values of parameters and buffers, drawn on the host so that every device starts alike."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from v4model.layers.router import HashRouter


@torch.no_grad()
def initialise(model: nn.Module, *, std: float, seed: int) -> None:
    """Norm weights and mHC scales 1; sinks, biases and mHC bases 0; matrices normal with `std`; hash tables random.

    A fixed hash table gives every token id distinct experts.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        parameter.copy_(
            _initial_parameter(name, parameter, std=std, generator=generator)
        )
    for name, buffer in model.named_buffers():
        if name.endswith("tid2eid"):
            router = model.get_submodule(name.rpartition(".")[0])
            assert isinstance(router, HashRouter)
            draws = torch.rand(buffer.shape[0], router.num_experts, generator=generator)
            buffer.copy_(draws.argsort(1)[:, : buffer.shape[1]])
        else:
            buffer.zero_()


def _initial_parameter(
    name: str, parameter: Tensor, *, std: float, generator: torch.Generator
) -> Tensor:
    module, _, leaf = name.rpartition(".")
    if module.endswith("norm") or leaf in ("scale", "hc_scale"):
        return torch.ones(parameter.shape)
    if leaf in ("sinks", "position_bias", "base", "hc_base"):
        return torch.zeros(parameter.shape)
    return torch.randn(parameter.shape, generator=generator, dtype=torch.float32) * std
