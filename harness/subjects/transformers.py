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
from v4model import V4Config, V4Model, hf
from v4model.errors import ConfigError

_MODELING = "transformers.models.deepseek_v4.modeling_deepseek_v4"
_CONFIGURATION = "transformers.models.deepseek_v4.configuration_deepseek_v4"
ISLANDS = (_MODELING, "transformers.modeling_rope_utils")
"""Modules that compute in float32 whatever the dtype of the weights."""

_LAYER_TYPES = {
    "dense": "sliding_attention",
    "csa": "compressed_sparse_attention",
    "hca": "heavily_compressed_attention",
}

# Sizes and constants that both configurations call by one name.
_SAME = (
    "vocab_size hidden_size num_hidden_layers num_attention_heads head_dim q_lora_rank o_groups o_lora_rank "
    "sliding_window index_n_heads index_head_dim index_topk n_routed_experts num_experts_per_tok "
    "moe_intermediate_size routed_scaling_factor swiglu_limit hc_mult hc_sinkhorn_iters hc_eps rms_norm_eps "
    "rope_theta compress_rope_theta"
).split()


@dataclass(frozen=True)
class SampleResult:
    """One sample: logits [T, V]; nll [T - 1] of the next token in nats; loss, their mean as transformers gives it.

    `gradients` has every parameter by transformers' name, None where no graph reaches it.
    """

    logits: Tensor
    nll: Tensor
    loss: Tensor
    gradients: Mapping[str, Tensor | None]


def settings(config: V4Config) -> dict[str, Any]:
    """The keyword arguments of transformers' DeepseekV4Config that describe the trunk of `config`.

    Raises:
        ConfigError: HCA layers of several ratios, for which transformers has only one number.
    """
    ratios = config.compress_ratios[: config.num_hidden_layers]
    heavy = sorted({ratio for layer, ratio in enumerate(ratios) if config.kind(layer) == "hca"})
    if len(heavy) > 1:
        raise ConfigError(got=f"HCA ratios {heavy}", expected="one ratio", where="the trunk, for transformers")
    hashed = config.num_hash_layers
    # The rotary width has no field of its own: it is a share of head_dim, in each of the two rope settings.
    share = {"partial_rotary_factor": config.qk_rope_head_dim / config.head_dim}
    compress: dict[str, Any] = {"rope_type": "default", "rope_theta": config.compress_rope_theta, **share}
    longest = config.max_position_embeddings
    if (yarn := config.rope_scaling) is not None:
        # Left out, attention_factor would be derived from the factor and scale cos and sin.
        compress |= {"rope_type": "yarn", "factor": yarn.factor, "attention_factor": 1.0}
        compress |= {"original_max_position_embeddings": yarn.original_max_position_embeddings}
        compress |= {"beta_fast": yarn.beta_fast, "beta_slow": yarn.beta_slow}
        # Unused where a factor is given, but it logs a complaint if the two disagree.
        longest = int(yarn.factor * yarn.original_max_position_embeddings)
    return {
        **{name: getattr(config, name) for name in _SAME},
        **share,
        "max_position_embeddings": longest,
        "layer_types": [_LAYER_TYPES[config.kind(layer)] for layer in range(config.num_hidden_layers)],
        "compress_rates": {_LAYER_TYPES["csa"]: 4, _LAYER_TYPES["hca"]: heavy[0] if heavy else 128},
        "mlp_layer_types": ["hash_moe"] * hashed + ["moe"] * (config.num_hidden_layers - hashed),
        "rope_parameters": {
            "main": {"rope_type": "default", "rope_theta": config.rope_theta, **share},
            "compress": compress,
        },
        "use_cache": False,
    }


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
            configuration.DeepseekV4Config(**settings(model.config)),
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
