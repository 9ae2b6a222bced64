"""What an adapter of another project's model stands on: it computes logits, the rest of an observation is made here.

    class Mine(Adapter):
        name = "mine"
        unsupported = {"mtp": "the model has no MTP", "balance": "...", "kl": "..."}

        def __init__(self, config, dtype, seed):
            super().__init__(config, dtype, seed)
            self.model = ...

        def parameters(self): return dict(self.model.named_parameters())
        def embeddings(self, pack): return ...              # [T, D], detached
        def forward(self, pack, embeddings): return Outputs(logits=[...])

The class itself is the factory: `--subject module:Mine`. Letters: T tokens of the pack, V vocabulary, D hidden size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from harness.subjects.protocol import Depth, Observation, Unsupported
from harness.subjects.support import ASPECTS, EMBEDDINGS, refusal_of_pack

if TYPE_CHECKING:
    from v4model import Pack, PackLayout, V4Config


@dataclass(frozen=True, kw_only=True, eq=False)
class Outputs:
    """What a model computed of a pack, with its graph.

    logits: [T, V] of the trunk, then of each MTP depth; rows of padding as the model gives them, 0 where it has none.
    nll: [T] for each depth where the model has its own; otherwise made of the logits.
    balance: sum over samples of len_s * L_s for each learned router, by the router's name, without the coefficient;
    balance_counts: what each is divided by. kl: the indexers' divergences summed over queries, without the coefficient.
    losses: those that the model itself computed ("loss", "main", "mtp1", "balance", ...), to be checked; any that is
    left out is made of the sums.
    """

    logits: Sequence[Tensor]
    nll: Sequence[Tensor] | None = None
    balance: Mapping[str, Tensor] = field(default_factory=dict)
    balance_counts: Mapping[str, float] = field(default_factory=dict)
    kl: Tensor | None = None
    losses: Mapping[str, Tensor] = field(default_factory=dict)


class Adapter(ABC):
    """A subject made of a model that gives logits; refuses by itself what it declares unsupported."""

    name: str
    unsupported: Mapping[str, str] = MappingProxyType({})

    def __init__(self, config: V4Config, dtype: torch.dtype, seed: int) -> None:
        """dtype: of weights and values. seed: what weights are drawn from."""
        self.config = config
        self.dtype = dtype
        self.seed = seed

    @abstractmethod
    def parameters(self) -> Mapping[str, Tensor]:
        """Every trainable parameter by name, as leaves of the graph."""

    @abstractmethod
    def embeddings(self, pack: Pack) -> Tensor:
        """[T, D] what the model looks up for each token, detached; 0 at padding."""

    @abstractmethod
    def forward(self, pack: Pack, embeddings: Tensor | None) -> Outputs:
        """Run the pack; embeddings [T, D], if given, replace the lookup in the trunk and in every MTP depth."""

    def observe(self, pack: Pack, *, embeddings: Tensor | None = None) -> Observation:
        """One forward pass under the protocol's names; raises Unsupported for a pack that the model cannot take."""
        reason = refusal_of_pack(pack, self.unsupported)
        if reason is None and embeddings is not None and EMBEDDINGS in self.unsupported:
            reason = f"{ASPECTS[EMBEDDINGS].about}: {self.unsupported[EMBEDDINGS]}"
        if reason is not None:
            raise Unsupported(reason)
        return observation_of(self.forward(pack, embeddings), pack, config=self.config)


def observation_of(outputs: Outputs, pack: Pack, *, config: V4Config) -> Observation:
    """The outputs with nll, validity, sums, counts and losses as the definition has them.

    Depth k (0 the trunk) at position t predicts token t + k + 1 of its sample; a mask belongs to the label's token; a
    loss is the sum over labels that count by their number, 0 where none does; the total is main + mtp_scale / depths *
    MTP + balance + KL. Raises Unsupported where the configuration has depths or terms that the outputs lack, and
    TypeError or ValueError for outputs of another form.
    """
    depths = config.num_nextn_predict_layers
    _check_form(outputs, shape=[pack.layout.total, config.vocab_size])
    if len(outputs.logits) != depths + 1:
        raise Unsupported(f"it gives logits of {len(outputs.logits)} depths, the configuration has {depths + 1}")
    given = [None] * (depths + 1) if outputs.nll is None else outputs.nll
    found = [
        _depth(depth, logits, nll, pack) for depth, (logits, nll) in enumerate(zip(outputs.logits, given, strict=True))
    ]
    names = ["main", *(f"mtp{depth}" for depth in range(1, depths + 1))]
    labels = [_supervised_labels(pack, depth=depth) for depth in range(depths + 1)]
    sums = {name: torch.where(own, depth.nll, 0).sum() for name, own, depth in zip(names, labels, found, strict=True)}
    counts = {name: float(own.sum()) for name, own in zip(names, labels, strict=True)}
    if outputs.kl is not None:
        sums["kl"], counts["kl"] = outputs.kl, float(pack.layout.real_tokens)
    for router, balance in outputs.balance.items():
        sums[f"balance {router}"] = balance
        counts[f"balance {router}"] = float(outputs.balance_counts[router])
    known = ("loss", *names, "balance", "kl")
    if unknown := outputs.losses.keys() - set(known):
        raise ValueError(f"got losses called {', '.join(sorted(unknown))}; expected some of {', '.join(known)}")
    losses = {**_losses(sums, counts, config), **outputs.losses}
    return Observation(depths=tuple(found), sums=sums, counts=counts, losses=losses)


def _check_form(outputs: Outputs, *, shape: list[int]) -> None:
    given: object = outputs
    if not isinstance(given, Outputs):
        raise TypeError(f"forward gave {type(given).__name__}; expected Outputs")
    for what, tables, expected in (("logits", outputs.logits, shape), ("nll", outputs.nll or (), shape[:1])):
        for depth, table in enumerate(tables):
            where = f"{what} of {f'MTP depth {depth}' if depth else 'the trunk'}"
            if not isinstance(table, Tensor):
                raise TypeError(f"{where}: got {type(table).__name__}; expected a tensor of torch")
            if list(table.shape) != expected:
                raise ValueError(f"{where}: got shape {list(table.shape)}; expected {expected}")


def at_tokens(rows: Tensor, layout: PackLayout) -> Tensor:
    """[T, ...] rows of the real tokens [N, ...], in their order, at their places in the pack; 0 at padding."""
    whole = rows.new_zeros((layout.total, *rows.shape[1:]))
    return whole.index_copy(0, layout.real.nonzero()[:, 0], rows)


def nll_of(logits: Tensor, pack: Pack, *, depth: int) -> Tensor:
    """[T] negative log likelihood in nats of each token's label at a depth, exactly 0 where it has none."""
    source = pack.layout.ahead(depth + 1)
    labelled = (source >= 0).nonzero()[:, 0]
    own = cross_entropy(logits[labelled], pack.tokens[source[labelled]], reduction="none")
    return logits.new_zeros(len(logits)).index_copy(0, labelled, own)


def _depth(depth: int, logits: Tensor, nll: Tensor | None, pack: Pack) -> Depth:
    nll = nll_of(logits, pack, depth=depth) if nll is None else nll
    return Depth(values=logits, nll=nll, valid=pack.layout.ahead(depth) >= 0)


def _supervised_labels(pack: Pack, *, depth: int) -> Tensor:
    """[T] bool: the token has a label at the depth, and it counts."""
    source = pack.layout.ahead(depth + 1)
    return (source >= 0) & pack.supervised[source.clamp(min=0)]


def _losses(sums: Mapping[str, Tensor], counts: Mapping[str, float], config: V4Config) -> dict[str, Tensor]:
    """The losses that the sums are enough for."""
    means = {name: value / max(counts[name], 1) for name, value in sums.items()}
    zero = torch.zeros_like(means["main"])
    losses = {name: mean for name, mean in means.items() if " " not in name and name != "kl"}
    mtp = sum((mean for name, mean in losses.items() if name.startswith("mtp")), zero)
    balances = [mean for name, mean in means.items() if name.startswith("balance ")]
    if balances or not config.balance_coef:
        losses["balance"] = config.balance_coef * sum(balances, zero)
    if "kl" in means or not config.index_kl_coef:
        losses["kl"] = config.index_kl_coef * means.get("kl", zero)
    if "balance" in losses and "kl" in losses:
        share = config.mtp_scale / max(config.num_nextn_predict_layers, 1)
        losses["loss"] = losses["main"] + share * mtp + losses["balance"] + losses["kl"]
    return losses
