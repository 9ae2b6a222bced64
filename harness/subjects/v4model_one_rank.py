"""The packed model of this repository on one rank, with weights lively enough for every defect to move something.

Wherever the model is, what goes in and comes out is on the host, with the graph intact; gradients are where their
parameters are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from harness.subjects.protocol import Depth, Observation, Subject, Unsupported
from harness.subjects.rank_pool import DEVICES
from harness.subjects.record import Record
from harness.subjects.recording import recording
from harness.subjects.v4model_data import V4Data
from v4model import Pack, V4Config, V4Model, V4Output, hf


@dataclass(frozen=True)
class V4OneRank(V4Data):
    """`V4Model` behind the subject protocol. `model` is open to faults, which plant defects in it and take them out.

    backend: over what its ranks exchange where they are processes, a name of `rank_pool.DEVICES`.
    """

    model: V4Model
    seed: int
    name: str = "v4model"
    backend: str = "gloo"

    @property
    def config(self) -> V4Config:
        """The model's."""
        return self.model.config

    def parameters(self) -> Mapping[str, Tensor]:
        """Every parameter by its name in the module tree."""
        return dict(self.model.named_parameters())

    def embeddings(self, pack: Pack) -> Tensor:
        """[T, D], 0 at padding, detached."""
        with torch.no_grad():
            return self.model.embed(pack).detach().cpu()

    def observe(self, pack: Pack, *, embeddings: Tensor | None = None) -> Observation:
        """One forward; values are logits. Beside the divisors, counts hold every learned router's selections."""
        out = self.model(pack, logits=True, embeddings=_to(embeddings, self.model.device))
        assert isinstance(out, V4Output)
        return observation(out, real=pack.layout.real)

    def on_ranks(self, ranks: int, *, processes: bool) -> Subject:
        """The same model on context-parallel ranks, simulated in this process or on processes.

        Raises Unsupported for more processes over NCCL than there are GPUs.
        """
        from harness.subjects.v4model_ranks import InProcess, Processes, V4OnRanks

        if processes and DEVICES[self.backend] == "cuda" and torch.cuda.device_count() < ranks:
            raise Unsupported(f"got {torch.cuda.device_count()} GPUs for {ranks} ranks over {self.backend}")
        return V4OnRanks(self, Processes(ranks, backend=self.backend) if processes else InProcess(ranks))

    def export_weights(self) -> Mapping[str, npt.NDArray[Any]]:
        """Parameters and buffers under transformers' names (and mtp.{k}.*), floating ones as float64."""
        return export_weights(self.model)

    def layer_outputs(self, pack: Pack, *, embeddings: Tensor | None = None) -> Record:
        """One forward pass, recorded under the names of `harness.subjects.record`."""
        with torch.no_grad(), recording(self.model) as found:
            self.model(pack, embeddings=_to(embeddings, self.model.device))
        return found.own


def build(config: V4Config, dtype: torch.dtype, seed: int) -> V4OneRank:
    """A subject with weights drawn from `seed`; the same arguments may give the same model again."""
    return V4OneRank(lively_model(config, dtype, seed), seed)


def build_over_nccl(config: V4Config, dtype: torch.dtype, seed: int) -> V4OneRank:
    """The same subject, whose ranks on processes have a GPU each and exchange over NCCL."""
    return V4OneRank(lively_model(config, dtype, seed), seed, name="v4model over NCCL", backend="nccl")


def export_weights(model: V4Model) -> dict[str, npt.NDArray[Any]]:
    """Parameters and buffers under transformers' names (and mtp.{k}.*), floating ones as float64."""
    tensors = hf.export(model, names="transformers")
    return {
        name: (tensor.detach().double() if tensor.is_floating_point() else tensor).cpu().numpy()
        for name, tensor in tensors.items()
    }


def observation(out: V4Output, *, real: Tensor) -> Observation:
    """A forward pass under the protocol's names, on the host; `real` [n] of the output's own tokens."""
    terms, counts = out.terms, out.counts
    heads = ("main", *(f"mtp{depth}" for depth in range(1, len(out.mtp) + 1)))
    sums = {**dict(zip(heads, terms.nll_sums, strict=True)), "kl": terms.kl_sum}
    divisors = {**dict(zip(heads, map(float, counts.labels), strict=True)), "kl": float(counts.tokens[0])}
    losses = {"loss": out.loss, "main": out.main_loss, "balance": out.balance_loss, "kl": out.kl_loss}
    losses |= dict(zip(heads[1:], out.mtp_losses, strict=True))
    # Routers have denominators of their own (MTP depths count valid positions only), hence a sum and a count each.
    for layer, balance_sum in terms.balance_sums.items():
        name = out.config.block_name(layer)
        sums[f"balance {name}"] = balance_sum
        divisors[f"balance {name}"] = float(counts.tokens[out.config.depth(layer)])
    for name, selections in out.router_counts.items():
        divisors |= {f"selections {name} expert {expert}": n for expert, n in enumerate(selections.tolist())}
    trunk = _depth(out.logits, out.token_nll, real)
    return Observation(
        depths=(trunk, *(_depth(mtp.logits, mtp.token_nll, mtp.valid) for mtp in out.mtp)),
        sums={name: value.cpu() for name, value in sums.items()},
        counts=divisors,
        losses={name: value.cpu() for name, value in losses.items()},
    )


def _depth(logits: Tensor | None, nll: Tensor, valid: Tensor) -> Depth:
    assert logits is not None, "logits were asked for"
    return Depth(values=logits.cpu(), nll=nll.cpu(), valid=valid.cpu())


def _to(embeddings: Tensor | None, device: torch.device) -> Tensor | None:
    return None if embeddings is None else embeddings.to(device)


@lru_cache(maxsize=4)
def lively_model(config: V4Config, dtype: torch.dtype, seed: int, device: str = "cpu") -> V4Model:
    """A model whose weights let every defect move something; the same one again for the same arguments.

    Its values do not depend on the device.
    """
    model = V4Model(config, dtype=dtype, device=device, seed=seed)
    with torch.no_grad():
        source = torch.Generator().manual_seed(seed)
        for name, parameter in model.named_parameters():
            parameter.copy_(_lively(name, parameter.shape, source))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(0.05 * torch.randn(buffer.shape, generator=source, dtype=torch.float64))
    return model


def _lively(name: str, shape: torch.Size, source: torch.Generator) -> Tensor:
    """Initial weights are quiet: zero sinks and biases, unit norms. There a defect in their use would move nothing."""
    noise = torch.randn(shape, generator=source, dtype=torch.float64)
    module, _, leaf = name.rpartition(".")
    if module.endswith("norm") or leaf in ("scale", "hc_scale"):
        return 1 + 0.2 * noise
    if leaf in ("base", "hc_base"):
        return 0.5 * noise
    if leaf in ("sinks", "position_bias"):
        return noise
    if leaf == "weight" and module.endswith("embed_tokens"):
        return noise  # a lookup, not a product: rows of unit size
    return noise / math.sqrt(shape[-1])
