"""MegatronV4: the model behind GPTModel's forward signature. The only file that imports megatron-core."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from v4model.config import V4Config
from v4model.errors import ConfigError, PackError
from v4model.exchange import Exchange, Ranks
from v4model.layers.share import Share
from v4model.model import V4Model, V4Output
from v4model.ops.shift import shift
from v4model.pack import Pack, PackLayout
from v4model.parallel.processes import ProcessWire

# What megatron-core 0.16 to 0.19 says when it is imported without its optional companions.
_AT_IMPORT = (
    r".*torch.jit.script.* is deprecated",
    r"(Transformer Engine and Apex are|Apex is) not installed",
    r"The following imports from `dynamic_context.py`",
)
with warnings.catch_warnings():
    for _message in _AT_IMPORT:
        warnings.filterwarnings("ignore", message=_message)
    from megatron.core import parallel_state
    from megatron.core.packed_seq_params import PackedSeqParams
    from megatron.core.transformer.module import MegatronModule
    from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler, roll_tensor
    from megatron.core.transformer.transformer_config import TransformerConfig

__all__ = ["MegatronV4", "PackedSeqParams", "roll_tensor"]


class MegatronV4(MegatronModule):  # type: ignore[misc]  # megatron-core ships no types
    """V4Model as Megatron's training loop calls a GPTModel, on parallel_state's context and expert groups.

    MTP, balance and KL losses ride on the returned per-token loss through Megatron's loss scaler, so their gradients
    arrive whatever the loop makes of it.

    Raises:
        ConfigError: parallel_state asks for tensor parallelism (V4's dominant tensors have no head axis to cut), or for
            pipeline stages, which `v4model.parallel.pp.run_step` runs.
    """

    def __init__(
        self, config: V4Config, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu", seed: int = 0
    ) -> None:
        super().__init__(_transformer_config(config, dtype=dtype))
        self.ranks, share = _ranks_and_share()
        self.v4 = V4Model(config, dtype=dtype, device=device, seed=seed, share=share)

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
        out: V4Output = self.v4(pack, logits=labels is None, ranks=self.ranks)
        if out.logits is not None:
            return out.logits[None]
        loss: Tensor = MTPLossAutoScaler.apply(out.token_nll, out.loss - out.main_loss)
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


def _ranks_and_share() -> tuple[Ranks, Share]:
    """The groups of parallel_state when it is initialised, one rank otherwise."""
    if not parallel_state.is_initialized():
        return Ranks.one(), Share()
    for name, size in (
        ("tensor parallel", parallel_state.get_tensor_model_parallel_world_size()),
        ("pipeline", parallel_state.get_pipeline_model_parallel_world_size()),
    ):
        if size > 1:
            raise ConfigError(got=f"a {name} size of {size}", expected="1", where="parallel_state")
    cp = Exchange(ProcessWire(parallel_state.get_context_parallel_group(), checked=False))
    ep = Exchange(ProcessWire(parallel_state.get_expert_model_parallel_group(), checked=False))
    return Ranks(cp, ep), Share(expert_rank=ep.rank, expert_ranks=ep.ranks)


def _transformer_config(config: V4Config, *, dtype: torch.dtype) -> TransformerConfig:
    """What Megatron's own machinery (optimizer, checkpoints) asks of a module's config."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="full scope is deprecated", category=UserWarning)
        return TransformerConfig(
            num_layers=config.num_hidden_layers,
            hidden_size=config.hidden_size,
            num_attention_heads=config.num_attention_heads,
            params_dtype=dtype,
            bf16=dtype == torch.bfloat16,
        )
