"""nemo_automodel's DeepSeek-V4 as a subject: packed as its recipes do it, and packed so that samples stay apart.

It runs in an environment of its own (`harness peers --make`), on the CPU with its eager and torch back ends. What it
computes in float32 whatever the dtype is lifted to float64. Its experts loop over those that are hit, in shapes that
depend on routing, so rows that nothing reaches may differ by rounding.

Letters: T tokens of the row that the model is given, V vocabulary, D hidden size.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from harness.subjects.peer import UNSUPPORTED, OneRow, Peer, embedded, positions
from harness.subjects.protocol import Unsupported
from harness.subjects.wide import float32_is_float64
from v4model import PackLayout, V4Config, hf

_PACKAGE = "nemo_automodel.components"
_V4 = f"{_PACKAGE}.models.deepseek_v4"
_COMMON = f"{_PACKAGE}.models.common.utils"
_NORM = "_float32_rms_norm_fwd"
_ISLANDS = (
    *(f"{_V4}.{name}" for name in ("model", "mtp", "layers", "cp", "optimized_kernels")),
    *(f"{_PACKAGE}.{name}" for name in ("moe.layers", "moe.experts")),
    _COMMON,
)
BACKEND = {
    "attn": "eager",
    "linear": "torch",
    "rms_norm": "torch",
    "experts": "torch",
    "dispatcher": "torch",
    "rope_fusion": False,
}
"""What runs on a CPU without compiled kernels."""

# Sizes that both configurations call by one name.
_SAME = (
    "vocab_size hidden_size moe_intermediate_size num_hidden_layers num_attention_heads head_dim qk_rope_head_dim "
    "q_lora_rank o_lora_rank o_groups n_routed_experts num_experts_per_tok routed_scaling_factor swiglu_limit "
    "max_position_embeddings rope_theta compress_rope_theta sliding_window num_hash_layers hc_eps hc_mult "
    "hc_sinkhorn_iters index_head_dim index_n_heads index_topk num_nextn_predict_layers rms_norm_eps"
).split()

_UNSUPPORTED = {**UNSUPPORTED, "fixed shapes": "its experts are run on the tokens that chose them"}


class _NemoPeer(Peer):
    """What both ways to pack share; in training mode, where its MTP runs."""

    unsupported = _UNSUPPORTED

    def __init__(self, config: V4Config, dtype: torch.dtype, seed: int) -> None:
        super().__init__(config, dtype, seed)
        _import()
        with _lifted():
            self.model = _built(config)
            released = {
                name: tensor.detach().clone() for name, tensor in hf.export(self.origin, names="released").items()
            }
            self.model.state_dict_adapter.dtype = dtype  # which it would round the experts' weights to
            self.model.double().load_state_dict(self.model.state_dict_adapter.from_hf(released), strict=True)
        self.model.train()

    @property
    def table(self) -> nn.Module:
        """Its embedding."""
        table: nn.Module = self.model.model.embed_tokens
        return table


class AsShipped(_NemoPeer, OneRow):
    """One row with qkv_format thd, seq_lens and position_ids, as a packed batch of its recipes."""

    name = "nemo_automodel, packed as shipped"

    def values(self, layout: PackLayout, ids: Tensor, embeddings: Tensor) -> Sequence[Tensor]:
        """[T, V] of the trunk and of each depth."""
        lengths = list(layout.lengths)
        padded = [nxt - start for start, nxt in zip(layout.starts, [*layout.starts[1:], layout.total], strict=True)]
        row = {"position_ids": positions(layout)[None], "qkv_format": "thd"}
        row |= {"seq_lens": torch.tensor([lengths]), "seq_lens_padded": torch.tensor([padded])}
        with _lifted(), embedded(self.table, embeddings, rolls=importlib.import_module(f"{_V4}.mtp")):
            out = self.model(ids[None], **row)
            heads = [self.model.lm_head(hidden)[0] for hidden in out.mtp_per_depth_h or ()]
        return [out.logits.reshape(layout.total, -1), *heads]

    def parts(self) -> Mapping[str, nn.Module]:
        """Attention and experts of each block."""
        blocks = {f"layers.{number}": block for number, block in self.model.model.layers.items()}
        blocks |= {
            f"mtp.{number}": block for number, block in enumerate(self.model.mtp.layers if self.model.mtp else ())
        }
        return {
            f"{name}.{part}": getattr(block, part) for name, block in blocks.items() for part in ("self_attn", "mlp")
        }


class Corrected(_NemoPeer):
    """Each sample padded to a multiple of the ratios, one packed mask for trunk and MTP, the shift inside samples."""

    name = "nemo_automodel, packed correctly"

    def values(self, layout: PackLayout, ids: Tensor, embeddings: Tensor) -> Sequence[Tensor]:
        """[T, V] of the trunk and of each depth."""
        multiple = math.lcm(*self.config.ratios) if self.config.ratios else 1
        lengths = [length + -length % multiple for length in layout.lengths]
        own = PackLayout.from_lengths(layout.lengths, total=sum(lengths), slots=lengths)
        # Real tokens keep their order, so a mask of each row tells where they go and where they came from.
        ids, embeddings = (_moved(rows, layout.real, own.real) for rows in (ids, embeddings))
        place = torch.cat([torch.arange(length) for length in lengths])[None]
        seq_lens = torch.tensor([lengths])
        shifted = [_ahead(embeddings, own, depth + 1)[None] for depth in range(self.config.num_nextn_predict_layers)]
        with _lifted(), embedded(self.table, embeddings):
            row = {"position_ids": place, "qkv_format": "thd", "seq_lens": seq_lens, "seq_lens_padded": seq_lens}
            hidden, streams = self.model.model(ids[None], return_hc_hidden=True, **row)
            heads = [hidden, *self._mtp(streams, shifted, place=place, seq_lens=seq_lens)]
            logits = [self.model.lm_head(head)[0] for head in heads]
        return [_moved(rows, own.real, layout.real) for rows in logits]

    def _mtp(self, streams: Tensor, shifted: Sequence[Tensor], *, place: Tensor, seq_lens: Tensor) -> Sequence[Tensor]:
        if not shifted:
            return ()
        row = {"seq_len": streams.shape[1], "device": streams.device}
        mask = importlib.import_module(f"{_V4}.layers").build_packed_causal_padding_mask(
            seq_lens, dtype=streams.dtype, sliding_window=self.config.sliding_window, **row
        )
        numbers = importlib.import_module(f"{_V4}.cp").build_packed_seq_ids(seq_lens, **row)
        found: Sequence[Tensor] = self.model.mtp(
            streams, embed_inputs=shifted, position_ids=place, attention_mask=mask, packed_seq_ids=numbers
        )
        return found


def _moved(rows: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Rows where `source` [T] is True, at the places where `target` [U] is; 0 elsewhere. [T, ...] -> [U, ...]"""
    whole = rows.new_zeros(len(target), *rows.shape[1:])
    return whole.index_copy(0, target.nonzero()[:, 0], rows[source])


def _ahead(rows: Tensor, layout: PackLayout, by: int) -> Tensor:
    """[T, D] the row `by` further in the same sample, 0 where it ends before."""
    source = layout.ahead(by)
    return torch.where((source >= 0)[:, None], rows[source.clamp(min=0)], 0.0)


@contextmanager
def _lifted() -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(float32_is_float64(_ISLANDS))
        common = sys.modules.get(_COMMON)
        if hasattr(common, _NORM):
            # Its own backward, outside of this context, would still be float32.
            stack.enter_context(mock.patch.object(common, _NORM, _norm))
        yield


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return nn.functional.rms_norm(x, (x.shape[-1],), weight, eps)


def _uncompiled(function: Any = None, **_: object) -> Any:
    """torch.compile that compiles nothing: it would cost half a minute a process, and changes no formula."""
    return function if function is not None else _uncompiled


def _import() -> None:
    """Before anything is lifted; raises Unsupported where it is not installed."""
    try:
        with mock.patch.object(torch, "compile", _uncompiled):
            for name in (f"{_V4}.model", _COMMON):
                importlib.import_module(name)
    except ImportError as error:
        raise Unsupported(f"nemo_automodel is not in this environment: {error}") from error


def settings(config: V4Config) -> dict[str, Any]:
    """The keyword arguments of its DeepseekV4Config that describe `config`."""
    yarn = config.rope_scaling
    rope = None if yarn is None else {"type": "yarn", **dataclasses.asdict(yarn)}
    same = {name: getattr(config, name) for name in _SAME}
    return {**same, "compress_ratios": list(config.compress_ratios), "rope_scaling": rope}


def _built(config: V4Config) -> Any:
    model, of_config, common = (importlib.import_module(name) for name in (f"{_V4}.model", f"{_V4}.config", _COMMON))
    return model.DeepseekV4ForCausalLM(
        of_config.DeepseekV4Config(**settings(config), dtype="float32"), backend=common.BackendConfig(**BACKEND)
    )
