"""Hugging Face transformers' DeepseekV4ForCausalLM with a V4Model's weights: the reference for one sample at a time.

It isolates no packed samples and has no MTP, so it reads the trunk of one sample. Parts of it compute in float32
whatever the dtype of its weights ("islands"); `in_float64` lifts them. transformers is an extra for tests, imported
when something here is first called.

Letters: T tokens of the sample, V vocabulary.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from harness.errors import UsageError
from harness.subjects.wide import float32_is_float64
from v4model import V4Model, hf
from v4model.hf_settings import transformers_settings

_MODELING = "transformers.models.deepseek_v4.modeling_deepseek_v4"
_CONFIGURATION = "transformers.models.deepseek_v4.configuration_deepseek_v4"
ISLANDS = (_MODELING, "transformers.modeling_rope_utils")
"""Modules that compute in float32 whatever the dtype of the weights."""


@dataclass(frozen=True)
class SampleResult:
    """One sample: logits [T, V]; nll [T - 1] of the next token in nats; loss, their mean as transformers gives it.

    `gradients` has every parameter by transformers' name, None where no graph reaches it.
    """

    logits: Tensor
    nll: Tensor
    loss: Tensor
    gradients: Mapping[str, Tensor | None]


class TransformersReference:
    """transformers' model with the trunk weights of `model`, in float64, with its float32 islands as shipped.

    experts: its experts_implementation. grouped_mm has no float64; batched_mm computes in shapes that do not depend on
    routing, so that bits can be compared.
    """

    def __init__(self, model: V4Model, *, experts: str = "eager") -> None:
        self.config = model.config
        modeling, configuration = module_of(_MODELING), module_of(_CONFIGURATION)
        # Kernels other than the eager ones have no float64 (grouped_mm) or no sinks (SDPA).
        self.model = modeling.DeepseekV4ForCausalLM._from_config(
            configuration.DeepseekV4Config(**transformers_settings(model.config)),
            attn_implementation="eager",
            experts_implementation=experts,
        )
        self.model.double().eval()
        weights = hf.export(model, names="transformers")
        trunk = {name: tensor for name, tensor in weights.items() if not name.startswith("mtp.")}
        self.model.load_state_dict(trunk, strict=True)

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """[T, V] of one sample of T token ids, without a graph."""
        with torch.no_grad():
            logits: Tensor = self.model(input_ids=torch.tensor([list(tokens)])).logits[0]
        return logits

    def run(self, tokens: Sequence[int]) -> SampleResult:
        """Forward and backward of the next-token loss of one sample of T token ids.

        One token alone has no label, and its loss is 0/0: then the sum of its squared logits is differentiated instead.
        """
        ids = torch.tensor([list(tokens)])
        self.model.zero_grad(set_to_none=True)
        out = self.model(input_ids=ids, labels=ids)
        logits = out.logits[0]
        nll = nn.functional.cross_entropy(logits[:-1], ids[0, 1:], reduction="none")
        (out.loss if len(tokens) > 1 else logits.square().sum()).backward()
        gradients = {name: parameter.grad for name, parameter in self.model.named_parameters()}
        return SampleResult(logits.detach(), nll.detach(), out.loss.detach(), gradients)

    @contextmanager
    def in_float64(self) -> Iterator[None]:
        """Lifts the float32 islands to float64 for the duration; every formula stays transformers' own.

        Its modules see a `torch` whose float32 is float64, `Tensor.float` gives float64 everywhere in the process, and
        the rotary frequencies are computed anew by its own functions under these names.
        """
        rotaries = [module for module in self.model.modules() if type(module).__name__ == "DeepseekV4RotaryEmbedding"]
        kept = [[buffer.clone() for buffer in rotary.buffers()] for rotary in rotaries]
        for name in ISLANDS:
            module_of(name)
        with float32_is_float64(ISLANDS):
            for rotary in rotaries:
                _copy(type(rotary)(rotary.config).buffers(), into=rotary.buffers())
            try:
                yield
            finally:
                for rotary, buffers in zip(rotaries, kept, strict=True):
                    _copy(buffers, into=rotary.buffers())


def _copy(values: Iterable[Tensor], *, into: Iterable[Tensor]) -> None:
    for value, target in zip(values, into, strict=True):
        target.copy_(value)


def module_of(name: str) -> Any:
    """A module of transformers; raises UsageError where it is not installed."""
    # By name, so that neither an import of this file nor a type check waits for transformers (several seconds).
    try:
        return importlib.import_module(name)
    except ImportError as error:
        expected = "transformers 5.23 or newer, the extra 'test' of this package"
        raise UsageError(got=str(error), expected=expected, where="the reference by transformers") from error


def trunk_parameters(model: V4Model) -> dict[str, nn.Parameter]:
    """The parameters of `model` that transformers has too, by transformers' names and in the model's order."""
    # An export shares the model's memory, so a place in memory tells which parameter a name belongs to.
    names = {tensor.data_ptr(): name for name, tensor in hf.export(model, names="transformers").items()}
    named = ((names[parameter.data_ptr()], parameter) for parameter in model.parameters())
    return {name: parameter for name, parameter in named if not name.startswith("mtp.")}
