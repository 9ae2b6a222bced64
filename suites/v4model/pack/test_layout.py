"""PackLayout: every spelling of a pack gives one and the same layout."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from v4model.pack import PackLayout

SAMPLES = PackLayout((5, 3, 4), (0, 5, 8), 12)  # nothing but samples
PADDED = PackLayout((5, 3, 4), (0, 8, 12), 20)  # slots of 8, 4 and 4, then 4 tokens that belong to nobody
REAL, SLOTS = [0, 5, 8, 12], [0, 8, 12, 16]


@dataclasses.dataclass
class SeqParams:
    """The fields of megatron-core's PackedSeqParams that are read."""

    qkv_format: str | None = "thd"
    cu_seqlens_q: torch.Tensor | None = None
    cu_seqlens_kv: torch.Tensor | None = None
    cu_seqlens_q_padded: torch.Tensor | None = None
    cu_seqlens_kv_padded: torch.Tensor | None = None
    max_seqlen_q: int | None = None
    max_seqlen_kv: int | None = None


def int32(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize(
    "spelling",
    [
        pytest.param(lambda: PackLayout.from_lengths([5, 3, 4]), id="lengths"),
        pytest.param(lambda: PackLayout.from_lengths(torch.tensor([5, 3, 4])), id="lengths tensor"),
        pytest.param(lambda: PackLayout.from_cu_seqlens(REAL), id="list"),
        pytest.param(lambda: PackLayout.from_cu_seqlens(tuple(REAL)), id="tuple"),
        pytest.param(lambda: PackLayout.from_cu_seqlens(int32(REAL)), id="int32"),
        pytest.param(lambda: PackLayout.from_cu_seqlens(torch.tensor(REAL)), id="int64"),
        pytest.param(lambda: PackLayout.from_cu_seqlens(np.array(REAL, np.int32)), id="numpy int32"),
        pytest.param(lambda: PackLayout.from_cu_seqlens(np.array(REAL)), id="numpy int64"),
        pytest.param(lambda: PackLayout.from_cu_seqlens(int32([*REAL, 12, 12])), id="repeated at the end"),
        pytest.param(lambda: PackLayout.from_cu_seqlens(REAL, total=12, max_seqlen=5), id="total and max_seqlen"),
        pytest.param(lambda: PackLayout.from_cu_seqlens(REAL, padded=REAL), id="slots without padding"),
        pytest.param(lambda: PackLayout.from_position_ids([0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3]), id="position_ids"),
        pytest.param(
            lambda: PackLayout.from_position_ids(int32([0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3])[None]),
            id="position_ids [1, T]",
        ),
        pytest.param(lambda: PackLayout.from_megatron(SeqParams(cu_seqlens_q=int32(REAL))), id="megatron"),
        pytest.param(
            lambda: PackLayout.from_megatron(
                SeqParams(cu_seqlens_q=int32(REAL), cu_seqlens_kv=int32(REAL), max_seqlen_q=5), total=12
            ),
            id="megatron, keys too",
        ),
    ],
)
def test_spellings_without_padding_agree(spelling: Any) -> None:
    assert spelling() == SAMPLES
    assert hash(spelling()) == hash(SAMPLES)


@pytest.mark.parametrize(
    "spelling",
    [
        pytest.param(lambda: PackLayout.from_lengths([5, 3, 4], slots=[8, 4, 4], total=20), id="lengths and slots"),
        pytest.param(lambda: PackLayout.from_lengths([5, 3, 4], slots=[8, 4, 8]), id="the last slot holds the tail"),
        pytest.param(lambda: PackLayout.from_cu_seqlens(REAL, padded=SLOTS, total=20), id="cu_seqlens and slots"),
        pytest.param(lambda: PackLayout.from_cu_seqlens(int32(REAL), padded=[0, 8, 12, 20]), id="mixed types"),
        pytest.param(
            lambda: PackLayout.from_cu_seqlens([*REAL, 12], padded=[*SLOTS, 20]), id="a trailing slot without a sample"
        ),
        pytest.param(
            lambda: PackLayout.from_megatron(
                SeqParams(
                    cu_seqlens_q=int32(REAL), cu_seqlens_q_padded=int32(SLOTS), cu_seqlens_kv_padded=int32(SLOTS)
                ),
                total=20,
            ),
            id="megatron",
        ),
    ],
)
def test_spellings_with_padding_agree(spelling: Any) -> None:
    assert spelling() == PADDED


def test_tail_padding_of_positions_is_declared_and_not_read() -> None:
    expected = PackLayout.from_lengths([3, 2], total=8)
    for tail in ([0, 0, 0], [2, 3, 4], [-1, 7, 0]):
        assert PackLayout.from_position_ids([0, 1, 2, 0, 1, *tail], padding=3) == expected


def test_zeros_at_the_end_are_samples_when_the_caller_says_so() -> None:
    assert PackLayout.from_position_ids([0, 1, 0, 0], padding=0).lengths == (2, 1, 1)
    assert PackLayout.from_position_ids([0, 1, 0]).lengths == (2, 1)


def test_single_is_one_sample_that_fills_the_pack() -> None:
    assert PackLayout.single(7) == PackLayout((7,), (0,), 7)


def test_padding_only_is_a_layout() -> None:
    empty = PackLayout.from_lengths([], total=4)
    assert empty.num_samples == empty.real_tokens == 0
    assert not empty.real.any()
    assert empty == PackLayout.from_cu_seqlens([0], total=4) == PackLayout.from_position_ids([0] * 4, padding=4)


def test_tables_of_a_padded_pack() -> None:
    layout = PackLayout.from_lengths([3, 2], slots=[4, 4])
    assert layout.sample.tolist() == [0, 0, 0, -1, 1, 1, -1, -1]
    assert layout.position.tolist() == [0, 1, 2, 0, 0, 1, 0, 0]
    assert layout.length.tolist() == [3, 3, 3, 0, 2, 2, 0, 0]
    assert layout.real.tolist() == [True, True, True, False, True, True, False, False]
    assert layout.ahead(1).tolist() == [1, 2, -1, -1, 5, -1, -1, -1]
    assert layout.ahead(2).tolist() == [2, -1, -1, -1, -1, -1, -1, -1]
    assert layout.ahead(0).tolist() == [0, 1, 2, -1, 4, 5, -1, -1]
    assert (layout.sample.dtype, layout.position.dtype, layout.real.dtype) == (torch.int64, torch.int64, torch.bool)
    assert layout.where(5) == "sample 1 of 2, position 1 (token 5)"
    assert layout.where(6) == "padding (token 6)"


def test_frozen_and_tables_are_made_once() -> None:
    layout = PackLayout.from_lengths([3, 2])
    with pytest.raises(dataclasses.FrozenInstanceError):
        layout.total = 9  # type: ignore[misc]
    assert layout.sample is layout.sample
    assert layout.ahead(1) is PackLayout.from_lengths([3, 2]).ahead(1)


@st.composite
def layouts(draw: st.DrawFn) -> PackLayout:
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=7))
    gaps = draw(st.lists(st.integers(0, 4), min_size=len(lengths), max_size=len(lengths)))
    return PackLayout.from_lengths(lengths, slots=[a + b for a, b in zip(lengths, gaps, strict=True)])


@given(layout=layouts(), repeats=st.integers(0, 3), dtype=st.sampled_from([np.int32, np.int64]))
def test_layout_survives_cu_seqlens(layout: PackLayout, repeats: int, dtype: type) -> None:
    real = np.cumsum([0, *layout.lengths])
    slots = np.array([*layout.starts, layout.total])
    padded = [np.append(bounds, [bounds[-1]] * repeats).astype(dtype) for bounds in (real, slots)]
    assert PackLayout.from_cu_seqlens(padded[0], padded=padded[1]) == layout


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=7), tail=st.integers(0, 5))
def test_layout_survives_position_ids(lengths: list[int], tail: int) -> None:
    layout = PackLayout.from_lengths(lengths, total=sum(lengths) + tail)
    assert PackLayout.from_position_ids(layout.position, padding=tail) == layout


@given(layout=layouts(), steps=st.integers(0, 10))
def test_tables_follow_the_definition(layout: PackLayout, steps: int) -> None:
    owner = {}
    for sample, (start, length) in enumerate(zip(layout.starts, layout.lengths, strict=True)):
        owner |= {start + t: (sample, t, length) for t in range(length)}
    for token in range(layout.total):
        sample, position, length = owner.get(token, (-1, 0, 0))
        assert (int(layout.sample[token]), int(layout.position[token])) == (sample, position)
        reaches = sample >= 0 and position + steps < length
        assert int(layout.ahead(steps)[token]) == (token + steps if reaches else -1)
