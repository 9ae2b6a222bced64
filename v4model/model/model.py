"""V4Model: trunk, LM head and MTP over one pack."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from v4model.config import V4Config
from v4model.errors import PackError
from v4model.layers.context import PackContext, context_of
from v4model.layers.router import LearnedRouter
from v4model.model.embedding import at_real_tokens
from v4model.model.head import LMHead
from v4model.model.initial import initialise
from v4model.model.loss import StepTerms, head_loss, losses, step_terms
from v4model.model.mtp import MTPDepth
from v4model.model.trunk import Trunk
from v4model.pack.collate import Pack


@dataclass(frozen=True, eq=False)
class MTPOutput:
    """Of one depth: hidden [T, D], valid [T] (t + depth is in the sample), token_nll [T], logits [T, V] if asked."""

    hidden: Tensor
    valid: Tensor
    token_nll: Tensor
    logits: Tensor | None


@dataclass(frozen=True, eq=False)
class V4Output:
    """Losses are scalars; token_nll [T] is 0 where no label exists, and not masked by `supervised`."""

    loss: Tensor
    main_loss: Tensor
    mtp_losses: tuple[Tensor, ...]
    balance_loss: Tensor
    kl_loss: Tensor
    token_nll: Tensor
    hidden: Tensor
    logits: Tensor | None
    mtp: tuple[MTPOutput, ...]
    terms: StepTerms
    router_counts: dict[str, Tensor]
    """Selections [E] of each learned router, by the name of its block ("trunk.layers.3", "mtp.0.block")."""


class V4Model(nn.Module):
    """The packed DeepSeek-V4 model on one rank.

    Args:
        config: sizes and constants.
        dtype: float64, float32 or bfloat16; norms, gates, mHC and sinks stay in float32 or better.
        device: "meta" builds shapes only.
        seed: of the initial values.
    """

    def __init__(
        self,
        config: V4Config,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.config, self.dtype = config, dtype
        with torch.device(device):
            self.trunk = Trunk(config, dtype=dtype)
            self.lm_head = LMHead(config, dtype=dtype)
            depths = range(1, config.num_nextn_predict_layers + 1)
            self.mtp = nn.ModuleList(MTPDepth(config, depth=depth, dtype=dtype) for depth in depths)
        if torch.device(device).type != "meta":
            initialise(self, std=config.initializer_range, seed=seed)

    @property
    def device(self) -> torch.device:
        return self.lm_head.weight.device

    def embed(self, pack: Pack) -> Tensor:
        """[T, D]; 0 at padding. Pass it back as `embeddings` to differentiate with respect to it."""
        embeddings: Tensor = self.trunk.embed_tokens(self._context(pack))
        return embeddings

    def forward(self, pack: Pack, *, logits: bool = False, embeddings: Tensor | None = None) -> V4Output:
        """One pack, forward.

        Args:
            logits: also return logits [T, V] of the trunk and of every depth.
            embeddings: [T, D] in place of the table's; those of padding are not read.

        Raises:
            PackError: a real token outside the vocabulary, or embeddings of another shape.
        """
        context = self._context(pack)
        # Broadcasting would accept one row, or none, for all tokens.
        wanted = [pack.layout.total, self.config.hidden_size]
        if embeddings is not None and list(embeddings.shape) != wanted:
            raise PackError(got=f"embeddings {list(embeddings.shape)}", expected=f"{wanted}")
        embedded = (
            self.trunk.embed_tokens(context) if embeddings is None else at_real_tokens(embeddings, context=context)
        )
        hidden, blocks = self.trunk(embedded, context=context)
        hiddens = [hidden]
        for depth in self.mtp:
            hidden, block = depth(blocks[-1].streams, embedded, context=context)
            hiddens.append(hidden)
            blocks.append(block)
        heads = [
            head_loss(hidden, head=self.lm_head, steps=depth + 1, context=context)
            for depth, hidden in enumerate(hiddens)
        ]
        terms = step_terms(heads, blocks, real_tokens=pack.layout.real_tokens)
        step = losses(terms, config=self.config)
        mtp = tuple(
            MTPOutput(
                hidden=hiddens[depth],
                valid=context.ahead(depth) >= 0,
                token_nll=heads[depth].token_nll,
                logits=self.lm_head(hiddens[depth]) if logits else None,
            )
            for depth in range(1, len(hiddens))
        )
        return V4Output(
            loss=step.total,
            main_loss=step.main,
            mtp_losses=step.mtp,
            balance_loss=step.balance,
            kl_loss=step.kl,
            token_nll=heads[0].token_nll,
            hidden=hiddens[0],
            logits=self.lm_head(hiddens[0]) if logits else None,
            mtp=mtp,
            terms=terms,
            router_counts={
                name: block.router.counts
                for name, block in zip(self._block_names(), blocks, strict=True)
                if block.router is not None
            },
        )

    def rebalance_routers(self, router_counts: dict[str, Tensor]) -> None:
        """Moves every selection bias by the counts of a step (summed over its micro-batches and ranks)."""
        for name, counts in router_counts.items():
            gate = self.get_submodule(f"{name}.mlp.gate")
            assert isinstance(gate, LearnedRouter), f"{name} has no learned router"
            gate.rebalance(counts)

    def _block_names(self) -> list[str]:
        trunk = [f"trunk.layers.{layer}" for layer in range(self.config.num_hidden_layers)]
        return trunk + [f"mtp.{depth}.block" for depth in range(len(self.mtp))]

    def _context(self, pack: Pack) -> PackContext:
        return context_of(pack, config=self.config, dtype=self.dtype, device=self.device)
