"""PackLayout: where each sample of a pack lies. The one value that says which tokens are real."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from v4model.errors import PackError

Boundaries = Tensor | npt.NDArray[np.integer] | Sequence[int]
_Ints = npt.NDArray[np.int64]


class MegatronPackedSeqParams(Protocol):
    """What is read of megatron-core's `PackedSeqParams` (duck-typed, so that this module need not import it)."""

    qkv_format: str | None
    cu_seqlens_q: Tensor | None
    cu_seqlens_kv: Tensor | None
    cu_seqlens_q_padded: Tensor | None
    cu_seqlens_kv_padded: Tensor | None
    max_seqlen_q: int | None
    max_seqlen_kv: int | None


@dataclass(frozen=True)
class PackLayout:
    """Samples one after another in one row of `total` tokens; what lies between and behind them is padding.

    Sample s owns tokens [starts[s], starts[s] + lengths[s]). Hashable, so that what is derived from it can be cached.
    Lengths [3, 2] in slots [4, 4] give `sample` = [0, 0, 0, -1, 1, 1, -1, -1], `position` = [0, 1, 2, 0, 0, 1, 0, 0].

    Raises:
        PackError: samples that overlap, are empty or leave the row.
    """

    lengths: tuple[int, ...]
    starts: tuple[int, ...]
    total: int

    def __post_init__(self) -> None:
        if len(self.starts) != len(self.lengths):
            raise PackError(got=f"{len(self.starts)} starts", expected=f"one a sample, {len(self.lengths)}")
        if self.total < 1:
            raise PackError(got=f"a pack of {self.total} tokens", expected="at least 1 token")
        end = 0
        for sample, (start, length) in enumerate(zip(self.starts, self.lengths, strict=True)):
            where = _where(sample, len(self.lengths), start, start + length)
            if length < 1:
                raise PackError(got=f"a sample of length {length}", expected="at least 1 token", where=where)
            if start < end:
                raise PackError(got=f"a start of {start}", expected=f"the previous end {end} or later", where=where)
            end = start + length
            if end > self.total:
                raise PackError(
                    got=f"an end of {end}", expected=f"at most {self.total}, the pack's tokens", where=where
                )

    # -- spellings ---------------------------------------------------------------------------------------------------

    @classmethod
    def from_lengths(
        cls, lengths: Boundaries, *, total: int | None = None, slots: Boundaries | None = None
    ) -> PackLayout:
        """Samples of `lengths` tokens, each in a slot of `slots` tokens (default: no padding inside), `total` in all.

        Raises:
            PackError: an empty sample, a slot shorter than its sample, more tokens than `total`, or a float dtype.
        """
        sizes: list[int] = _row(lengths, name="lengths").tolist()
        room: list[int] = sizes if slots is None else _row(slots, name="slots").tolist()
        if len(room) != len(sizes):
            raise PackError(got=f"{len(room)} slots", expected=f"one a sample, {len(sizes)}")
        starts = [0]
        for sample, (length, slot) in enumerate(zip(sizes, room, strict=True)):
            where = _where(sample, len(sizes), starts[-1], starts[-1] + max(length, 0))
            if length < 1:
                raise PackError(got=f"a sample of length {length}", expected="at least 1 token", where=where)
            if slot < length:
                raise PackError(got=f"a slot of {slot} tokens", expected=f"at least {length}", where=where)
            starts.append(starts[-1] + slot)
        total = _count(total, name="total")
        whole = starts.pop() if total is None else total
        if total is not None and starts.pop() > whole:
            raise PackError(got=f"slots of {sum(room)} tokens", expected=f"at most total = {whole}")
        return cls(tuple(sizes), tuple(starts), whole)

    @classmethod
    def single(cls, num_tokens: int) -> PackLayout:
        """One sample that fills the pack."""
        return cls.from_lengths([num_tokens])

    @classmethod
    def from_cu_seqlens(
        cls,
        cu_seqlens: Boundaries,
        *,
        padded: Boundaries | None = None,
        total: int | None = None,
        max_seqlen: int | None = None,
    ) -> PackLayout:
        """Cumulative boundaries [S + 1], int32 or int64, on any device; boundaries repeated at the end are dropped.

        Args:
            padded: Megatron's `cu_seqlens_padded`, the boundaries of the slots; `cu_seqlens` then counts real tokens.
            total: tokens of the pack; declares what lies behind the last boundary as padding.
            max_seqlen: checked against the longest sample when given.

        Raises:
            PackError: a first boundary that is not 0, decreasing boundaries, an empty sample, a boundary past `total`.
        """
        real = _boundaries(cu_seqlens, name="cu_seqlens")
        slots = real if padded is None else _boundaries(padded, name="cu_seqlens_padded")
        if len(slots) != len(real):
            raise PackError(got=f"{len(slots)} cu_seqlens_padded", expected=f"as many as cu_seqlens, {len(real)}")
        total, max_seqlen = _count(total, name="total"), _count(max_seqlen, name="max_seqlen")
        whole = int(slots[-1]) if total is None else total
        lengths, room = np.diff(real), np.diff(slots)
        # An empty sample is legal only as a repeated boundary at the end, where Megatron fills fixed-size arrays.
        filled = int(np.flatnonzero(lengths)[-1]) + 1 if lengths.any() else 0
        for sample in np.flatnonzero(lengths[:filled] == 0).tolist():
            where = _where(sample, filled, int(slots[sample]), int(slots[sample + 1]))
            raise PackError(
                got="a sample of length 0", expected="empty samples only as boundaries repeated at the end", where=where
            )
        for sample in np.flatnonzero(slots[1:] > whole).tolist():
            where = _where(sample, len(lengths), int(slots[sample]), int(slots[sample + 1]))
            raise PackError(
                got=f"a boundary of {slots[sample + 1]}", expected=f"at most {whole}, the pack's tokens", where=where
            )
        for sample in np.flatnonzero(room < lengths).tolist():
            where = _where(sample, filled, int(slots[sample]), int(slots[sample] + lengths[sample]))
            raise PackError(got=f"a slot of {room[sample]} tokens", expected=f"at least {lengths[sample]}", where=where)
        if max_seqlen is not None and filled and max_seqlen < lengths.max():
            longest = int(lengths.argmax())
            where = _where(longest, filled, int(slots[longest]), int(slots[longest] + lengths[longest]))
            raise PackError(got=f"max_seqlen {max_seqlen}", expected=f"at least {lengths.max()}", where=where)
        return cls(tuple(lengths[:filled].tolist()), tuple(slots[:filled].tolist()), whole)

    @classmethod
    def from_position_ids(cls, position_ids: Boundaries, *, padding: int | None = None) -> PackLayout:
        """Positions [T] or [1, T] that restart at 0 with each sample; [0, 1, 2, 0, 1] is samples of 3 and 2 tokens.

        Positions cannot express tail padding: zeros there would read as samples of one token. So `padding` declares the
        number of padding tokens at the tail (their positions are not read), and positions that end in two or more zeros
        are refused until it does (0 says that they are samples of one token).

        Raises:
            PackError: several rows, a first position that is not 0, a jump, or undeclared zeros at the end.
        """
        padding = _count(padding, name="padding")
        positions = _integers(position_ids, name="position_ids")
        if positions.ndim == 2 and positions.shape[0] == 1:
            positions = positions[0]
        if positions.ndim != 1 or not positions.size:
            raise PackError(
                got=f"position_ids of shape {list(positions.shape)}", expected="one row of positions, [T] or [1, T]"
            )
        total = positions.size
        if not 0 <= (padding or 0) <= total:
            raise PackError(got=f"padding = {padding}", expected=f"0 to {total} tokens")
        if padding is None and total > 1 and positions[-1] == positions[-2] == 0:
            zeros = total - int(np.flatnonzero(positions)[-1]) - 1 if positions.any() else total
            raise PackError(
                got=f"position_ids that end in {zeros} zeros",
                expected="padding=N to say how many of them are padding (0: each is a sample of one token)",
                where=f"tokens [{total - zeros}, {total})",
            )
        positions = positions[: total - (padding or 0)]
        if positions.size and positions[0] != 0:
            raise PackError(got=f"a first position of {positions[0]}", expected="0", where="token 0")
        starts = np.flatnonzero(positions == 0)
        steps = np.diff(positions)
        for token in np.flatnonzero((steps != 1) & (positions[1:] != 0)) + 1:
            where = _where(int(np.searchsorted(starts, token)) - 1, len(starts), int(token), int(token) + 1)
            raise PackError(
                got=f"position {positions[token]} after {positions[token - 1]}",
                expected="one more, or 0 where a sample starts",
                where=where,
            )
        lengths = np.diff(starts, append=positions.size)
        return cls(tuple(lengths.tolist()), tuple(starts.tolist()), total)

    @classmethod
    def from_megatron(
        cls, packed_seq_params: MegatronPackedSeqParams | None, *, total: int | None = None
    ) -> PackLayout:
        """megatron-core's `PackedSeqParams` in `thd` format: `cu_seqlens_q` real ends, `cu_seqlens_q_padded` slots.

        Raises:
            PackError: another format, missing boundaries, or boundaries of keys that differ from those of queries.
        """
        if packed_seq_params is None:
            raise PackError(got="None", expected="PackedSeqParams (one sample is PackLayout.single(T))")
        params = packed_seq_params
        if params.qkv_format != "thd":
            raise PackError(got=f"qkv_format {params.qkv_format!r}", expected="'thd'", where="PackedSeqParams")
        if params.cu_seqlens_q is None:
            raise PackError(got="no cu_seqlens_q", expected="the boundaries of the samples", where="PackedSeqParams")
        pairs = (
            ("cu_seqlens", params.cu_seqlens_q, params.cu_seqlens_kv),
            ("cu_seqlens_padded", params.cu_seqlens_q_padded, params.cu_seqlens_kv_padded),
        )
        for name, of_queries, of_keys in pairs:
            if of_keys is not None and (of_queries is None or of_keys.tolist() != of_queries.tolist()):
                raise PackError(
                    got=f"{name} of keys unlike those of queries", expected="self-attention", where="PackedSeqParams"
                )
        longest = [length for length in (params.max_seqlen_q, params.max_seqlen_kv) if length is not None]
        return cls.from_cu_seqlens(
            params.cu_seqlens_q,
            padded=params.cu_seqlens_q_padded,
            total=total,
            max_seqlen=min(longest, default=None),
        )

    # -- per token, on the host --------------------------------------------------------------------------------------

    @property
    def num_samples(self) -> int:
        return len(self.lengths)

    @property
    def real_tokens(self) -> int:
        return sum(self.lengths)

    @cached_property
    def sample(self) -> Tensor:
        """[T] int64: the sample of each token, -1 for padding."""
        return torch.from_numpy(self._spread(np.repeat(np.arange(self.num_samples), self.lengths), fill=-1))

    @cached_property
    def position(self) -> Tensor:
        """[T] int64: position inside the sample, 0 for padding."""
        return torch.from_numpy(self._spread(self._position_of_real, fill=0))

    @cached_property
    def length(self) -> Tensor:
        """[T] int64: tokens of the token's sample, 0 for padding."""
        return torch.from_numpy(self._spread(np.repeat(np.asarray(self.lengths, np.int64), self.lengths), fill=0))

    @cached_property
    def real(self) -> Tensor:
        """[T] bool: False for padding."""
        return self.sample >= 0

    def ahead(self, steps: int) -> Tensor:
        """[T] int64: the token `steps` further in the same sample, -1 where the sample has none (or for padding).

        Samples of 3 and 2 tokens, one step: [1, 2, -1, 4, -1].
        """
        return _ahead(self, steps)

    def where(self, token: int) -> str:
        """A token's place in words: "sample 1 of 3, position 4 (token 9)"."""
        sample = int(self.sample[token])
        if sample < 0:
            return f"padding (token {token})"
        return f"sample {sample} of {self.num_samples}, position {int(self.position[token])} (token {token})"

    @cached_property
    def _position_of_real(self) -> _Ints:
        lengths = np.asarray(self.lengths, dtype=np.int64)
        return np.arange(self.real_tokens) - np.repeat(np.cumsum(lengths) - lengths, lengths)

    @cached_property
    def _token_of_real(self) -> _Ints:
        return np.repeat(np.asarray(self.starts, dtype=np.int64), self.lengths) + self._position_of_real

    def _spread(self, of_real: _Ints, *, fill: int) -> _Ints:
        spread = np.full(self.total, fill, dtype=np.int64)
        spread[self._token_of_real] = of_real
        return spread


@lru_cache(maxsize=256)
def _ahead(layout: PackLayout, steps: int) -> Tensor:
    reaches = layout.real & (layout.position + steps < layout.length)
    return torch.where(reaches, torch.arange(layout.total) + steps, -1)


def _where(sample: int, num_samples: int, start: int, end: int) -> str:
    return f"sample {sample} of {num_samples}, tokens [{start}, {end})"


def _integers(values: Boundaries, *, name: str) -> _Ints:
    if values is None:
        raise PackError(got="None", expected=f"{name} (one sample is PackLayout.single(T))")
    if isinstance(values, Tensor):
        # numpy has no bfloat16 to say so itself.
        if values.dtype not in (torch.int32, torch.int64):
            dtype = str(values.dtype).removeprefix("torch.")
            raise PackError(got=f"{name} of dtype {dtype}", expected="int32 or int64")
        return values.detach().cpu().numpy().astype(np.int64)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise PackError(got=f"{name} of rows of unequal length", expected="one row") from error
    if array.size and array.dtype not in (np.int32, np.int64):
        raise PackError(got=f"{name} of dtype {array.dtype}", expected="int32 or int64")
    return array.astype(np.int64)


def _count(value: int | None, *, name: str) -> int | None:
    """A number of tokens as it is; a float or a text is refused, not rounded."""
    if value is None:
        return None
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError as error:
        raise PackError(got=f"{name} = {value!r}", expected="a whole number of tokens") from error


def _row(values: Boundaries, *, name: str) -> _Ints:
    row = _integers(values, name=name)
    if row.ndim != 1:
        raise PackError(got=f"{name} of shape {list(row.shape)}", expected="one row")
    return row


def _boundaries(values: Boundaries, *, name: str) -> _Ints:
    bounds = _row(values, name=name)
    if not bounds.size:
        raise PackError(got=f"no {name}", expected="one row of samples + 1 boundaries")
    if bounds[0] != 0:
        raise PackError(got=f"a first boundary of {bounds[0]}", expected="0", where=f"{name}[0]")
    for sample in np.flatnonzero(np.diff(bounds) < 0):
        raise PackError(
            got=f"a boundary of {bounds[sample + 1]} after {bounds[sample]}",
            expected=f"{name} that never decrease",
            where=f"sample {sample} of {bounds.size - 1}",
        )
    return bounds
