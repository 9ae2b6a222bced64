"""PackLayout: what it refuses, told as got / expected / where (spec section 1)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from suites.v4model.pack.test_layout import SeqParams, int32
from v4model.errors import PackError
from v4model.pack import Pack, PackLayout

CU, POSITIONS, LENGTHS = PackLayout.from_cu_seqlens, PackLayout.from_position_ids, PackLayout.from_lengths
SEVEN = torch.zeros(7, dtype=torch.int64)
INTEGERS = "int32 or int64"

# name: how it is built, and what the error says it got, expected and where (all of it).
Refusals = dict[str, tuple[Callable[[], object], str, str, str]]

CU_SEQLENS: Refusals = {
    "first boundary": (lambda: CU([2, 5]), "a first boundary of 2", "0", "cu_seqlens[0]"),
    "decreasing": (lambda: CU([0, 5, 3, 9]), "a boundary of 3 after 5", "never decrease", "sample 1 of 3"),
    "boundary past T": (
        lambda: CU([0, 5, 9], total=8), "a boundary of 9", "at most 8", "sample 1 of 2, tokens [5, 9)",
    ),
    "last boundary short of T": (
        lambda: Pack(SEVEN, layout=CU([0, 3, 5])),
        "7 tokens", "5, as in the layout (declare padding with total=)", "tokens [5, 7)",
    ),
    "empty sample inside": (
        lambda: CU([0, 3, 3, 5]), "a sample of length 0", "repeated at the end", "sample 1 of 3, tokens [3, 3)",
    ),
    "empty first sample": (
        lambda: CU([0, 0, 5]), "a sample of length 0", "repeated at the end", "sample 0 of 2, tokens [0, 0)",
    ),
    "slot too small": (
        lambda: CU([0, 4, 6], padded=[0, 3, 6]), "a slot of 3 tokens", "at least 4", "sample 0 of 2, tokens [0, 4)",
    ),
    "slots missing": (lambda: CU([0, 4, 6], padded=[0, 8]), "2 cu_seqlens_padded", "as many as cu_seqlens, 3", ""),
    "first slot": (lambda: CU([0, 4], padded=[1, 5]), "a first boundary of 1", "0", "cu_seqlens_padded[0]"),
    "max_seqlen too small": (
        lambda: CU([0, 3, 9], max_seqlen=5), "max_seqlen 5", "at least 6", "sample 1 of 2, tokens [3, 9)",
    ),
    "float tensor": (lambda: CU(torch.tensor([0.0, 5.0])), "cu_seqlens of dtype float32", INTEGERS, ""),
    "float list": (lambda: CU([0.0, 5.5]), "cu_seqlens of dtype float64", INTEGERS, ""),
    "float slots": (lambda: CU([0, 5], padded=[0.0, 5.0]), "cu_seqlens_padded of dtype float64", INTEGERS, ""),
    "two axes": (lambda: CU([[0, 5]]), "cu_seqlens of shape [1, 2]", "one row", ""),
    "no boundary": (lambda: CU([]), "no cu_seqlens", "one row", ""),
    "None": (lambda: CU(None), "None", "cu_seqlens (one sample is PackLayout.single(T))", ""),
    "no tokens": (lambda: CU([0, 0]), "a pack of 0 tokens", "at least 1", ""),
}  # fmt: skip

POSITION_IDS: Refusals = {
    "rows": (lambda: POSITIONS(torch.arange(4).repeat(2, 1)), "position_ids of shape [2, 4]", "[T] or [1, T]", ""),
    "jump": (
        lambda: POSITIONS([0, 1, 0, 1, 3, 4]), "position 3 after 1", "one more, or 0", "sample 1 of 2, tokens [4, 5)",
    ),
    "stands still": (
        lambda: POSITIONS([0, 1, 2, 2]), "position 2 after 2", "one more, or 0", "sample 0 of 1, tokens [3, 4)",
    ),
    "negative": (
        lambda: POSITIONS([0, 1, -1]), "position -1 after 1", "one more, or 0", "sample 0 of 1, tokens [2, 3)",
    ),
    "first position": (lambda: POSITIONS([2, 3, 0]), "a first position of 2", "0", "token 0"),
    "first position, then a jump": (lambda: POSITIONS([2, 3, 5]), "a first position of 2", "0", "token 0"),
    "undeclared zeros": (
        lambda: POSITIONS([0, 1, 2, 0, 0, 0]), "position_ids that end in 3 zeros", "padding=N", "tokens [3, 6)",
    ),
    "all zeros": (lambda: POSITIONS([0, 0]), "position_ids that end in 2 zeros", "padding=N", "tokens [0, 2)"),
    "padding past T": (lambda: POSITIONS([0, 1], padding=3), "padding = 3", "0 to 2 tokens", ""),
    "negative padding": (lambda: POSITIONS([0, 1], padding=-1), "padding = -1", "0 to 2 tokens", ""),
    "float": (lambda: POSITIONS(np.arange(3.0)), "position_ids of dtype float64", INTEGERS, ""),
    "None": (lambda: POSITIONS(None), "None", "PackLayout.single(T)", ""),
}  # fmt: skip

SAMPLE_LENGTHS: Refusals = {
    "empty": (lambda: LENGTHS([3, 0, 2]), "a sample of length 0", "at least 1", "sample 1 of 3, tokens [3, 3)"),
    "slot too small": (
        lambda: LENGTHS([3, 4], slots=[3, 2]), "a slot of 2 tokens", "at least 4", "sample 1 of 2, tokens [3, 7)",
    ),
    "slots missing": (lambda: LENGTHS([3, 4], slots=[8]), "1 slots", "one a sample, 2", ""),
    "past total": (lambda: LENGTHS([3, 4], total=6), "slots of 7 tokens", "at most total = 6", ""),
    "nothing": (lambda: LENGTHS([]), "a pack of 0 tokens", "at least 1 token", ""),
    "float": (lambda: LENGTHS([2.5, 3.0]), "lengths of dtype float64", INTEGERS, ""),
    "float slots": (lambda: LENGTHS([2], slots=[2.5]), "slots of dtype float64", INTEGERS, ""),
    "two axes": (lambda: LENGTHS([[2, 3]]), "lengths of shape [1, 2]", "one row", ""),
    "None": (lambda: LENGTHS(None), "None", "lengths (one sample is PackLayout.single(T))", ""),
    "starts missing": (lambda: PackLayout((2, 2), (0,), 4), "1 starts", "one a sample, 2", ""),
    "overlap": (
        lambda: PackLayout((3, 2), (0, 2), 6),
        "a start of 2", "the previous end 3 or later", "sample 1 of 2, tokens [2, 4)",
    ),
    "past T": (
        lambda: PackLayout((3, 2), (0, 5), 6), "an end of 7", "at most 6", "sample 1 of 2, tokens [5, 7)",
    ),
}  # fmt: skip

MEGATRON: Refusals = {
    "None means nothing, not dense": (lambda: PackLayout.from_megatron(None), "None", "PackLayout.single(T)", ""),
    "format": (
        lambda: PackLayout.from_megatron(SeqParams(qkv_format="sbhd", cu_seqlens_q=int32([0, 3]))),
        "qkv_format 'sbhd'", "'thd'", "PackedSeqParams",
    ),
    "no boundaries": (lambda: PackLayout.from_megatron(SeqParams()), "no cu_seqlens_q", "bound", "PackedSeqParams"),
    "other keys": (
        lambda: PackLayout.from_megatron(SeqParams(cu_seqlens_q=int32([0, 3]), cu_seqlens_kv=int32([0, 4]))),
        "cu_seqlens of keys unlike", "self-attention", "PackedSeqParams",
    ),
    "slots of keys only": (
        lambda: PackLayout.from_megatron(SeqParams(cu_seqlens_q=int32([0, 3]), cu_seqlens_kv_padded=int32([0, 4]))),
        "cu_seqlens_padded of keys unlike", "self-attention", "PackedSeqParams",
    ),
    "max_seqlen too small": (
        lambda: PackLayout.from_megatron(SeqParams(cu_seqlens_q=int32([0, 3]), max_seqlen_q=2)),
        "max_seqlen 2", "at least 3", "sample 0 of 1, tokens [0, 3)",
    ),
}  # fmt: skip


REFUSED = {
    f"{spelling}: {name}": case
    for spelling, cases in {
        "cu_seqlens": CU_SEQLENS,
        "position_ids": POSITION_IDS,
        "lengths": SAMPLE_LENGTHS,
        "megatron": MEGATRON,
    }.items()
    for name, case in cases.items()
}


@pytest.mark.parametrize(("build", "got", "expected", "where"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_with_got_expected_and_where(build: Callable[[], object], got: str, expected: str, where: str) -> None:
    with pytest.raises(PackError) as caught:
        build()
    error = caught.value
    assert got in error.got
    assert expected in error.expected
    assert error.where == where
    assert str(error).startswith(f"got {error.got}; expected {error.expected}")
    assert not where or str(error).endswith(f"; where: {where}")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PackLayout.from_lengths([3, 2], total=6.7), r"got total = 6\.7; expected a whole number"),
        (lambda: PackLayout.from_cu_seqlens([0, 3], total="5"), "got total = '5'; expected a whole number"),
        (lambda: PackLayout.from_cu_seqlens([0, 3], max_seqlen=3.5), r"got max_seqlen = 3\.5"),
        (lambda: PackLayout.from_position_ids([0, 1, 0], padding=True), "got padding = True"),
        (lambda: PackLayout.from_lengths(torch.tensor([1.0, 2.0], dtype=torch.bfloat16)), "lengths of dtype bfloat16"),
        (lambda: PackLayout.from_lengths([[1], [1, 2]]), "got lengths of rows of unequal length"),
        (lambda: PackLayout.from_lengths([3, -1]), r"length -1; .*where: sample 1 of 2, tokens \[3, 3\)"),
    ],
)
def test_nothing_is_rounded_or_repaired(make: Callable[[], PackLayout], message: str) -> None:
    with pytest.raises(PackError, match=message):
        make()
