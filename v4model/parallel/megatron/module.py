"""MegatronV4: the model behind GPTModel's forward signature, and one stage of Megatron's pipeline."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from v4model.config import V4Config
from v4model.errors import PackError
from v4model.layers.share import Share
from v4model.model import V4Model, V4Output
from v4model.model.model import StageOutput
from v4model.ops.shift import shift
from v4model.pack import Pack, PackLayout
from v4model.pack.counts import StepCounts
from v4model.parallel.megatron.core import (
    MegatronModule,
    ModelType,
    MTPLossAutoScaler,
    PackedSeqParams,
    TransformerConfig,
)
from v4model.parallel.megatron.groups import ranks_and_share


class MegatronV4(MegatronModule):  # type: ignore[misc]  # megatron-core ships no types
    """This rank's share of V4Model as Megatron's training loop calls a GPTModel, on parallel_state's groups.

    Between pipeline stages travel streams [n, K, D]: a schedule is told seq_length T and micro_batch_size K. Every
    stage gets the arguments of `forward`, since hash layers route by token ids and every layer needs the boundaries.
    MTP, balance and KL losses ride on what a stage returns through Megatron's loss scaler, so their gradients arrive
    whatever the loop makes of it.

    Args:
        per_token_loss: whether the loop adds up `forward`'s losses and divides the gradients by the tokens of the step
            (Megatron's `calculate_per_token_loss`), or takes the mean of every micro-batch.
        recompute: as V4Model's.

    Raises:
        ConfigError: parallel_state asks for tensor parallelism (V4's dominant tensors have no head axis to cut).
    """

    def __init__(
        self,
        config: V4Config,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        seed: int = 0,
        per_token_loss: bool = False,
        recompute: bool = False,
    ) -> None:
        self.ranks, share = ranks_and_share()
        context_ranks = self.ranks.cp.ranks
        super().__init__(
            _transformer_config(
                config, dtype=dtype, share=share, context_ranks=context_ranks, per_token_loss=per_token_loss
            )
        )
        self.v4 = V4Model(config, dtype=dtype, device=device, seed=seed, share=share, recompute=recompute)
        # What Megatron's schedules and its reduction of the embedding's gradients ask of a model.
        self.model_type = ModelType.encoder_or_decoder
        self.pre_process, self.post_process = share.is_first, share.is_last
        self.share_embeddings_and_output_weights = False
        self.input_tensor: Tensor | None = None
        if share.stages > 1 and self.v4.trunk.embeds:
            _mark_shared(self.v4.trunk.embed_tokens.weight, is_copy=not share.is_first)

    def set_input_tensor(self, input_tensor: list[Tensor | None]) -> None:
        """Streams [n, K, D] of the stage before, [None] on the first; Megatron's schedules call it."""
        (self.input_tensor,) = input_tensor

    def shared_embedding_or_output_weight(self) -> Tensor | None:
        """The embedding on the stages that hold it, for the sum of its gradients over the first and the last."""
        return self.v4.trunk.embed_tokens.weight if self.v4.trunk.embeds else None

    def run_pack(self, pack: Pack, *, counts: StepCounts | None = None) -> StageOutput:
        """One micro-batch through this stage: from what `set_input_tensor` was given, on parallel_state's groups.

        Args:
            counts: of the whole step; None when the pack is all of it.
        """
        return self.v4.forward_stage(pack, streams=self.input_tensor, ranks=self.ranks, counts=counts)

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor | None,
        attention_mask: Tensor | None,
        labels: Tensor | None = None,
        loss_mask: Tensor | None = None,
        packed_seq_params: PackedSeqParams | None = None,
    ) -> Tensor:
        """Per-token loss [1, n] float32 or better, 0 where a sample has no next token; logits [1, n, V] without labels.

        On pipeline stages before the last: streams [n, K, D].

        n tokens are this context rank's own: tokens [i * n, (i + 1) * n) of the pack, contiguous.

        Args:
            input_ids: [1, n].
            position_ids: [1, n], checked against the boundaries; None to leave them to the boundaries.
            attention_mask: None; boundaries are packed_seq_params'.
            labels: [1, n], the next token of the same sample wherever `loss_mask` is set.
            loss_mask: [1, n], by position: entry t weighs the label of position t.
            packed_seq_params: of the whole pack on every rank; required, `thd`.

        Raises:
            PackError: an argument that contradicts the boundaries, or an order that is not contiguous (zig-zag).
        """
        if attention_mask is not None:
            raise PackError(got="an attention_mask", expected="None: packed_seq_params holds the boundaries")
        if input_ids.ndim != 2 or input_ids.shape[0] != 1:
            raise PackError(got=f"input_ids of shape {list(input_ids.shape)}", expected="one packed row, [1, T]")
        tokens = self._whole(input_ids)
        layout = PackLayout.from_megatron(packed_seq_params, total=tokens.numel())
        if position_ids is not None:
            where = "position_ids"
            _same_where(self._whole(position_ids), layout.position, at=layout.real, layout=layout, name=where)
        supervised = _supervised(
            tokens,
            labels=None if labels is None else self._whole(labels),
            loss_mask=None if loss_mask is None else self._whole(loss_mask),
            layout=layout,
        )
        pack = Pack(tokens, layout=layout, supervised=supervised)
        wants_logits = labels is None and self.post_process
        out = self.v4.forward_stage(pack, streams=self.input_tensor, logits=wants_logits, ranks=self.ranks)
        if not isinstance(out, V4Output):
            return carrying_loss(out)
        if out.logits is not None:
            return out.logits[None]
        # A loop that divides by the tokens of the step divides this too.
        weight = out.counts.labels[0] if self.config.calculate_per_token_loss else 1
        loss: Tensor = MTPLossAutoScaler.apply(out.token_nll, weight * (out.loss - out.main_loss))
        return loss[None]

    def _whole(self, own: Tensor) -> Tensor:
        """[1, n] of each context rank -> [T] of the pack; ids and masks are small."""
        counts = [own.shape[1]] * self.ranks.cp.ranks
        return self.ranks.cp.all_rows(own[0], counts=counts, where="MegatronV4")


def _supervised(tokens: Tensor, *, labels: Tensor | None, loss_mask: Tensor | None, layout: PackLayout) -> Tensor:
    """The mask by label token [T] from Megatron's mask by position, after checking the labels it weighs."""
    source = layout.ahead(1)
    counts = layout.real if loss_mask is None else loss_mask.cpu() > 0
    without_label = counts & (source < 0)
    if loss_mask is not None and without_label.any():
        raise PackError(
            got="a loss_mask that is set where there is no label",
            expected="0 at padding and at the last token of a sample",
            where=layout.where(int(without_label.nonzero()[0])),
        )
    if labels is not None:
        next_tokens = shift(tokens.cpu(), source=source, fill=-1)
        _same_where(labels, next_tokens, at=counts & (source >= 0), layout=layout, name="labels")
    supervised = torch.zeros(layout.total, dtype=torch.bool)
    supervised[source[source >= 0]] = counts[source >= 0]
    return supervised.to(tokens.device)


def _same_where(given: Tensor, own: Tensor, *, at: Tensor, layout: PackLayout, name: str) -> None:
    wrong = at & (given.cpu() != own)
    if wrong.any():
        token = int(wrong.nonzero()[0])
        raise PackError(
            got=f"{name} of {int(given[token])}",
            expected=f"{int(own[token])}, from the boundaries",
            where=layout.where(token),
        )


def carrying_loss(out: StageOutput) -> Tensor:
    """The stage's streams [n, K, D]; going backward through them goes backward through the stage's own loss as well."""
    if not out.loss.requires_grad:
        # Dense layers with the hash router have no loss of their own (balance, KL).
        return out.streams
    streams: Tensor = MTPLossAutoScaler.apply(out.streams, out.loss)
    return streams


def _mark_shared(weight: Tensor, *, is_copy: bool) -> None:
    """Tells Megatron that first and last stage hold this weight: a bucket of its own, and once in the gradient norm."""
    weight.shared_embedding = True  # type: ignore[attr-defined]
    weight.shared = is_copy  # type: ignore[attr-defined]


def _transformer_config(
    config: V4Config, *, dtype: torch.dtype, share: Share, context_ranks: int, per_token_loss: bool
) -> TransformerConfig:
    """What Megatron's own machinery (schedules, data parallelism, optimizer, checkpoints) asks of a module's config."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="full scope is deprecated", category=UserWarning)
        return TransformerConfig(
            num_layers=config.num_hidden_layers,
            hidden_size=config.hidden_size,
            num_attention_heads=config.num_attention_heads,
            mtp_num_layers=config.num_nextn_predict_layers or None,
            pipeline_model_parallel_size=share.stages,
            context_parallel_size=context_ranks,
            calculate_per_token_loss=per_token_loss,
            params_dtype=dtype,
            pipeline_dtype=dtype,
            bf16=dtype == torch.bfloat16,
        )
