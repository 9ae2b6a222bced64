"""Hugging Face transformers' model on the weights of ours: what `v4model bench` pairs a single sample with."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from v4model import hf
from v4model.errors import ConfigError
from v4model.hf_settings import transformers_settings
from v4model.model import V4Model
from v4model.pack import Pack


def reference_step(model: V4Model, pack: Pack) -> Callable[[], Tensor]:
    """A forward and backward pass of transformers on the pack's one sample.

    Attention is eager, the only kernel of its V4 that has sinks; experts run as transformers chooses. Its
    parameters are our memory where it keeps them in our dtype, its gradients its own.

    Raises:
        ConfigError: transformers is not installed, or has no DeepSeek-V4.
    """
    try:
        from transformers import DeepseekV4Config, DeepseekV4ForCausalLM
    except ImportError as error:
        raise ConfigError(
            got=str(error), expected="transformers 5.23 or newer, the extra 'test'", where="--twins transformers"
        ) from error
    model.zero_grad(set_to_none=True)
    with torch.device(model.device):
        theirs = DeepseekV4ForCausalLM._from_config(  # type: ignore[no-untyped-call]
            DeepseekV4Config(**transformers_settings(model.config)), dtype=model.dtype, attn_implementation="eager"
        )
    dtypes = {name: tensor.dtype for name, tensor in theirs.state_dict().items()}
    weights = {name: tensor.to(dtypes[name]) for name, tensor in hf.export(model, names="transformers").items()}
    theirs.load_state_dict(weights, strict=True, assign=True)
    ids = pack.tokens.to(model.device)[None]

    def step() -> Tensor:
        theirs.zero_grad(set_to_none=True)
        loss: Tensor = theirs(input_ids=ids, labels=ids).loss
        loss.backward()
        return loss

    return step
