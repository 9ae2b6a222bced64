"""V4Model: trunk, LM head and MTP over one pack; whole, or one rank's share of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from v4model.config import V4Config
from v4model.errors import PackError
from v4model.exchange import Ranks
from v4model.layers.context import PackContext, context_of
from v4model.layers.router import LearnedRouter
from v4model.layers.share import Share
from v4model.model.block import BlockOutput
from v4model.model.embedding import at_real_tokens
from v4model.model.head import LMHead
from v4model.model.initial import initialise
from v4model.model.loss import HeadLoss, StepTerms, head_loss, losses, step_terms
from v4model.model.mtp import MTPDepth
from v4model.model.trunk import Trunk
from v4model.pack.collate import Pack
from v4model.pack.counts import StepCounts, counts_of
from v4model.pack.shard import ShardPlan

WHOLE = Share()


@dataclass(frozen=True, eq=False)
class MTPOutput:
    """Of one depth: hidden [n, D], valid [n] (t + depth is in the sample), token_nll [n], logits [n, V] if asked."""

    hidden: Tensor
    valid: Tensor
    token_nll: Tensor
    logits: Tensor | None


@dataclass(frozen=True, eq=False)
class StageOutput:
    """Of a pipeline stage: its part of the loss, and streams [n, K, D] for the next."""

    config: V4Config
    loss: Tensor
    """With the whole step's counts; the stages' losses add up to the model's."""
    streams: Tensor
    terms: StepTerms
    plan: ShardPlan
    router_counts: dict[str, Tensor]
    """Selections [E] of each learned router over all ranks, by its block ("trunk.layers.3", "mtp.0.block")."""


@dataclass(frozen=True, eq=False)
class V4Output(StageOutput):
    """Of the last stage, or of a whole model, whose losses are then the step's.

    Losses are scalars, the same on every rank; token_nll [n] of the rank's tokens is 0 where no label exists, and not
    masked by `supervised`. `plan` says which tokens those are; on one rank, all.
    """

    main_loss: Tensor
    mtp_losses: tuple[Tensor, ...]
    balance_loss: Tensor
    kl_loss: Tensor
    token_nll: Tensor
    hidden: Tensor
    logits: Tensor | None
    mtp: tuple[MTPOutput, ...]
    counts: StepCounts


class V4Model(nn.Module):
    """The packed DeepSeek-V4 model.

    Args:
        config: sizes and constants.
        dtype: float64, float32 or bfloat16; norms, gates, mHC and sinks stay in float32 or better.
        device: "meta" builds shapes only.
        seed: of the initial values, which do not depend on the share.
        share: the part of the model that this rank holds.
        recompute: whether every block drops its intermediate values and computes them again in the backward pass; the
            same bits for less memory and more time.
        recompute_within: whether the parts of a block do so too, when it is computed again: what then exists at once is
            a part of one block, not a block, for a third forward pass of most of it.
    """

    def __init__(
        self,
        config: V4Config,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        seed: int = 0,
        share: Share = WHOLE,
        recompute: bool = False,
        recompute_within: bool = True,
    ) -> None:
        super().__init__()
        self.config, self.dtype, self.share = config, dtype, share
        self.recompute, self.recompute_within = recompute, recompute_within
        with torch.device(device):
            self.trunk = Trunk(config, share=share, dtype=dtype)
            if share.is_last:
                self.lm_head = LMHead(config, dtype=dtype)
                depths = range(1, config.num_nextn_predict_layers + 1)
                self.mtp = nn.ModuleList(MTPDepth(config, depth=depth, share=share, dtype=dtype) for depth in depths)
        if torch.device(device).type != "meta":
            initialise(self, std=config.initializer_range, seed=seed)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def embed(self, pack: Pack, *, ranks: Ranks | None = None) -> Tensor:
        """[n, D]; 0 at padding. Pass it back as `embeddings` to differentiate with respect to it."""
        embeddings: Tensor = self.trunk.embed_tokens(self._context(pack, ranks=ranks))
        return embeddings

    def forward(
        self,
        pack: Pack,
        *,
        logits: bool = False,
        embeddings: Tensor | None = None,
        ranks: Ranks | None = None,
        counts: StepCounts | None = None,
    ) -> V4Output:
        """One pack, forward; on a group of ranks, this rank's n tokens of it.

        Args:
            pack: the whole pack, the same on every rank of the group.
            logits: also return logits [n, V] of the trunk and of every depth.
            embeddings: [n, D] in place of the table's; those of padding are not read.
            ranks: the groups to compute in; None for one rank.
            counts: of the whole step, when the pack is one of several; the losses are then its share of the step's.

        Raises:
            PackError: a real token outside the vocabulary, or embeddings of another shape.
        """
        out = self.forward_stage(pack, logits=logits, embeddings=embeddings, ranks=ranks, counts=counts)
        assert isinstance(out, V4Output), "a stage of a pipeline runs by forward_stage"
        return out

    def forward_stage(
        self,
        pack: Pack,
        *,
        streams: Tensor | None = None,
        logits: bool = False,
        embeddings: Tensor | None = None,
        ranks: Ranks | None = None,
        counts: StepCounts | None = None,
    ) -> StageOutput:
        """`forward` of this share of the model: streams [n, K, D] come from the stage before, except on the first.

        Returns:
            StageOutput, on the last stage a V4Output.
        """
        context = self._context(pack, ranks=ranks)
        counts = counts or counts_of([pack], depths=self.config.num_nextn_predict_layers)
        embedded = self._embedded(embeddings, context=context)
        if streams is None:
            assert embedded is not None, "stages behind the first need the streams of the stage before"
            streams = self.trunk.enter(embedded)
        trunk = self.trunk(streams, context=context)
        if self.share.is_last:
            return self._finish(trunk, embedded, logits=logits, counts=counts, context=context)
        terms = step_terms([], trunk, context=context)
        return StageOutput(
            config=self.config,
            loss=losses(terms, counts=counts, config=self.config).total,
            streams=trunk[max(trunk)].streams,
            terms=terms,
            plan=context.plan,
            router_counts=self._router_counts(trunk),
        )

    def rebalance_routers(self, router_counts: dict[str, Tensor]) -> None:
        """Moves the selection biases by the counts of a step (summed over its micro-batches and replicas)."""
        for name, counts in router_counts.items():
            gate = self.get_submodule(f"{name}.mlp.gate")
            assert isinstance(gate, LearnedRouter), f"{name} has no learned router"
            gate.rebalance(counts)

    def _embedded(self, embeddings: Tensor | None, *, context: PackContext) -> Tensor | None:
        """[n, D], None on stages that do not embed."""
        if embeddings is not None:
            shape = (context.tokens.numel(), self.config.hidden_size)
            if embeddings.shape != shape:
                # Broadcasting would accept one row, or none, for all tokens.
                raise PackError(got=f"embeddings {list(embeddings.shape)}", expected=f"{list(shape)}")
            return at_real_tokens(embeddings, context=context)
        return self.trunk.embed_tokens(context) if self.trunk.embeds else None

    def _finish(
        self,
        blocks: dict[int, BlockOutput],
        embedded: Tensor | None,
        *,
        logits: bool,
        counts: StepCounts,
        context: PackContext,
    ) -> V4Output:
        streams = blocks[max(blocks)].streams
        hiddens = [self.trunk.leave(streams, recompute=context.recompute)]
        if embedded is not None:
            embedded = context.ranks.cp.right_halo(embedded, rows=len(self.mtp), plan=context.plan, where="mtp")
        for layer, depth in enumerate(self.mtp, self.config.num_hidden_layers):
            hidden, blocks[layer] = depth(streams, embedded, context=context)
            hiddens.append(hidden)
            streams = blocks[layer].streams
        heads = [
            head_loss(hidden, head=self.lm_head, steps=depth + 1, context=context)
            for depth, hidden in enumerate(hiddens)
        ]
        terms = step_terms(heads, blocks, context=context)
        step = losses(terms, counts=counts, config=self.config)
        return V4Output(
            config=self.config,
            loss=step.total,
            streams=streams,
            terms=terms,
            plan=context.plan,
            router_counts=self._router_counts(blocks),
            main_loss=step.main,
            mtp_losses=step.mtp,
            balance_loss=step.balance,
            kl_loss=step.kl,
            token_nll=heads[0].token_nll,
            hidden=hiddens[0],
            logits=self.lm_head(hiddens[0]) if logits else None,
            mtp=tuple(
                self._mtp_output(depth, hiddens[depth], heads[depth], logits=logits, context=context)
                for depth in range(1, len(hiddens))
            ),
            counts=counts,
        )

    def _mtp_output(
        self, depth: int, hidden: Tensor, loss: HeadLoss, *, logits: bool, context: PackContext
    ) -> MTPOutput:
        return MTPOutput(
            hidden=hidden,
            valid=context.ahead(depth) >= 0,
            token_nll=loss.token_nll,
            logits=self.lm_head(hidden) if logits else None,
        )

    def _router_counts(self, blocks: dict[int, BlockOutput]) -> dict[str, Tensor]:
        return {
            self.config.block_name(layer): block.router.counts
            for layer, block in blocks.items()
            if block.router is not None
        }

    def _context(self, pack: Pack, *, ranks: Ranks | None) -> PackContext:
        return context_of(
            pack,
            config=self.config,
            ranks=ranks or Ranks.one(),
            dtype=self.dtype,
            device=self.device,
            recompute=self.recompute,
            recompute_within=self.recompute_within,
        )
