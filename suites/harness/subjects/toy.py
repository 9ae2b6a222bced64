"""Models of another project, as their adapters would present them: small, healthy and not.

Each token's stream is a mixture of its sample up to it; MTP depths add the embedding further on. There are as many
depths as the configuration has, and no routers or indexers.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from harness.subjects.adapter import Adapter, Outputs
from v4model import Pack, V4Config

WIDTH = 8


class Toy(Adapter):
    """Healthy: each sample as if it were alone."""

    name = "toy"
    unsupported: Mapping[str, str] = {
        "balance": "the toy has no routers",
        "kl": "the toy has no indexers",
        "bfloat16": "the toy is not asked in it",
    }
    reads_before = 0
    """Tokens before its sample that each sample reads."""

    def __init__(self, config: V4Config, dtype: torch.dtype, seed: int) -> None:
        super().__init__(config, dtype, seed)
        source = torch.Generator().manual_seed(seed)

        def weight(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(shape, generator=source, dtype=torch.float64).to(dtype))

        self._table, self._gate = weight(config.vocab_size, WIDTH), weight(WIDTH, WIDTH)
        self._heads = [weight(WIDTH, config.vocab_size) for _ in range(config.num_nextn_predict_layers + 1)]

    def parameters(self) -> Mapping[str, Tensor]:
        """The table, the gate and the heads."""
        heads = {f"head.{depth}": head for depth, head in enumerate(self._heads)}
        return {"table": self._table, "gate": self._gate, **heads}

    def embeddings(self, pack: Pack) -> Tensor:
        """[T, 8], 0 at padding."""
        return self._looked_up(pack).detach()

    def forward(self, pack: Pack, embeddings: Tensor | None) -> Outputs:
        """Logits of every depth, 0 at padding."""
        self.about_to_run()
        rows = self._looked_up(pack) if embeddings is None else embeddings
        hidden = rows.new_zeros(rows.shape)
        for start, length in zip(pack.layout.starts, pack.layout.lengths, strict=True):
            own = torch.arange(start, start + length)
            read = rows[max(start - self.reads_before, 0) : start + length]
            hidden = hidden.index_copy(0, own, torch.tanh(read.cumsum(0) @ self._gate)[-length:])
        logits = []
        for depth, head in enumerate(self._heads):
            source = pack.layout.ahead(depth)
            further = torch.where((source >= 0)[:, None], rows[source.clamp(min=0)], 0)
            hidden = torch.where(pack.layout.real[:, None], hidden + further, 0)
            logits.append(hidden @ head)
        return Outputs(logits=logits)

    def about_to_run(self) -> None:
        """What else happens when it runs."""

    def _looked_up(self, pack: Pack) -> Tensor:
        ids = torch.where(pack.layout.real, pack.tokens, 0)
        return torch.where(pack.layout.real[:, None], self._table[ids], 0)


class Leaking(Toy):
    """Each sample reads the last token before it."""

    name = "leaking toy"
    reads_before = 1


class Printing(Toy):
    """Prints while it runs, as libraries do, to both streams and past Python's own."""

    name = "printing toy"

    def about_to_run(self) -> None:
        """Prints."""
        print("loaded 1 of 1 shards")
        print("a warning", file=sys.stderr)
        os.write(1, b"{}\n" * 1000)


class Dying(Toy):
    """Its process ends at the first run."""

    name = "dying toy"

    def about_to_run(self) -> None:
        """Does not return."""
        print("CUDA error: an illegal memory access", file=sys.stderr, flush=True)
        os._exit(7)


class Silent(Toy):
    """Its first run never ends."""

    name = "silent toy"

    def about_to_run(self) -> None:
        """Does not return."""
        print("waiting for rank 1", file=sys.stderr, flush=True)
        threading.Event().wait()


class Raising(Toy):
    """Its runs raise."""

    name = "raising toy"

    def about_to_run(self) -> None:
        """Does not return."""
        raise ValueError("mat1 and mat2 shapes cannot be multiplied\nsecond line")


class WithoutMtp(Toy):
    """Says that it has no MTP."""

    name = "trunk toy"
    unsupported: Mapping[str, str] = {**Toy.unsupported, "mtp": "the toy predicts one token"}


class ForgetsMtp(Toy):
    """Has no MTP, and says so nowhere."""

    name = "forgetful toy"

    def forward(self, pack: Pack, embeddings: Tensor | None) -> Outputs:
        """Logits of the trunk alone."""
        return Outputs(logits=super().forward(pack, embeddings).logits[:1])


class Single(Toy):
    """Takes one sample at a time, in float32."""

    name = "single toy"
    unsupported: Mapping[str, str] = {
        **Toy.unsupported,
        "packing": "the toy takes one sample",
        "padding": "the toy takes no padding",
        "float64": "the toy is float32",
    }
