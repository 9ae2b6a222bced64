"""A model of another project, as its adapter would present it: one that shares no class with ours.

Each token's stream is the gated running mean of its sample; MTP depths read the embedding further on. It has as many
depths as the configuration, and no routers or indexers.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from harness.subjects.adapter import Adapter, Outputs
from v4model import Pack, V4Config


class Toy(Adapter):
    """Healthy: each sample as if it were alone."""

    name = "toy"
    unsupported = {  # noqa: RUF012 - as an adapter's author writes it
        "balance": "the toy has no routers",
        "kl": "the toy has no indexers",
        "bfloat16": "the toy is not asked in it",
    }
    leaks = False

    def __init__(self, config: V4Config, dtype: torch.dtype, seed: int) -> None:
        super().__init__(config, dtype, seed)
        source = torch.Generator().manual_seed(seed)

        def weight(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(shape, generator=source, dtype=torch.float64).to(dtype))

        self._table, self._gate = weight(config.vocab_size, 8), weight(8, 8)
        self._heads = [weight(8, config.vocab_size) for _ in range(config.num_nextn_predict_layers + 1)]

    def parameters(self) -> Mapping[str, Tensor]:
        heads = {f"head.{depth}": head for depth, head in enumerate(self._heads)}
        return {"table": self._table, "gate": self._gate, **heads}

    def embeddings(self, pack: Pack) -> Tensor:
        return self._looked_up(pack).detach()

    def forward(self, pack: Pack, embeddings: Tensor | None) -> Outputs:
        rows = self._looked_up(pack) if embeddings is None else embeddings
        ends = [start + length for start, length in zip(pack.layout.starts, pack.layout.lengths, strict=True)]
        parts, end = [], 0
        for start, stop in zip(pack.layout.starts, ends, strict=True):
            own = rows[start:stop] if not self.leaks else rows[0:stop][-(stop - start) - 1 :]
            mixed = torch.tanh(own.cumsum(0) @ self._gate)[-(stop - start) :]
            parts += [rows.new_zeros(start - end, 8), mixed]
            end = stop
        hidden = torch.cat([*parts, rows.new_zeros(pack.layout.total - end, 8)])
        logits = []
        for depth, head in enumerate(self._heads):
            source = pack.layout.ahead(depth)
            further = torch.where((source >= 0)[:, None], rows[source.clamp(min=0)], 0)
            hidden = torch.where(pack.layout.real[:, None], hidden + further, 0)
            logits.append(hidden @ head)
        return Outputs(logits=logits)

    def _looked_up(self, pack: Pack) -> Tensor:
        ids = torch.where(pack.layout.real, pack.tokens, 0)
        return torch.where(pack.layout.real[:, None], self._table[ids], 0)


class Leaking(Toy):
    """Each sample reads the last token of the one before it."""

    name = "leaking toy"
    leaks = True
