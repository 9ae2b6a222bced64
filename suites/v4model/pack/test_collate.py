"""Pack: token ids, their layout, and the mask of what counts as a label."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from v4model.errors import PackError
from v4model.pack import Pack, PackLayout

LAYOUT = PackLayout.from_lengths([3, 2], slots=[4, 4])
TOKENS = torch.tensor([7, 0, 9, 5, 0, 8, 0, 3])  # ids of 0 in samples and in padding: an id says nothing


def test_every_real_token_counts_unless_told_otherwise() -> None:
    pack = Pack(TOKENS, layout=LAYOUT)
    assert pack.supervised.tolist() == [True, True, True, False, True, True, False, False]


def test_mask_never_reaches_padding() -> None:
    mask = torch.tensor([False, True, False, True, True, False, True, True])
    pack = Pack(TOKENS, layout=LAYOUT, supervised=mask)
    assert pack.supervised.tolist() == [False, True, False, False, True, False, False, False]
    assert mask[3], "the caller's mask is left alone"


def test_from_samples_lays_them_one_after_another() -> None:
    pack = Pack.from_samples([[4, 5, 6], [7]], supervised=[[False, True, True], [True]], total=6)
    assert pack.layout == PackLayout.from_lengths([3, 1], total=6)
    assert pack.tokens.tolist() == [4, 5, 6, 7, 0, 0]
    assert pack.supervised.tolist() == [False, True, True, True, False, False]
    assert Pack.from_samples([[4, 5], [6]]).layout == PackLayout.from_lengths([2, 1])


def test_frozen() -> None:
    with pytest.raises(AttributeError):
        Pack(TOKENS, layout=LAYOUT).tokens = TOKENS  # type: ignore[misc]


REFUSED: dict[str, tuple[Callable[[], Pack], str, str, str]] = {
    "no layout": (lambda: Pack(TOKENS, layout=None), "a layout of type NoneType", "a PackLayout", ""),
    "lengths for a layout": (lambda: Pack(TOKENS, layout=[3, 2]), "a layout of type list", "a PackLayout", ""),
    "too many tokens": (
        lambda: Pack(TOKENS, layout=PackLayout.single(5)), "8 tokens", "5, as in the layout", "tokens [5, 8)",
    ),
    "too few tokens": (
        lambda: Pack(TOKENS, layout=PackLayout.single(9)), "8 tokens", "9, as in the layout", "tokens [8, 9)",
    ),
    "float tokens": (lambda: Pack(TOKENS.float(), layout=LAYOUT), "tokens torch.float32 [8]", "int64 [T]", ""),
    "a batch": (lambda: Pack(TOKENS[None], layout=LAYOUT), "tokens torch.int64 [1, 8]", "int64 [T]", ""),
    "float mask": (
        lambda: Pack(TOKENS, layout=LAYOUT, supervised=torch.ones(8)), "supervised torch.float32 [8]", "bool [8]", "",
    ),
    "short mask": (
        lambda: Pack(TOKENS, layout=LAYOUT, supervised=torch.ones(7, dtype=torch.bool)),
        "supervised torch.bool [7]", "bool [8]", "",
    ),
    "mask of another sample length": (
        lambda: Pack.from_samples([[1, 2], [3]], supervised=[[True, True], [True, True]]),
        "2 mask entries", "1", "sample 1 of 2",
    ),
    "mask missing": (
        lambda: Pack.from_samples([[1, 2], [3]], supervised=[[True, True]]), "1 masks", "one a sample, 2", "",
    ),
    "empty sample": (
        lambda: Pack.from_samples([[1, 2], []]),
        "a sample of length 0", "at least 1 token", "sample 1 of 2, tokens [2, 2)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("build", "got", "expected", "where"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_with_got_expected_and_where(build: Callable[[], Pack], got: str, expected: str, where: str) -> None:
    with pytest.raises(PackError) as caught:
        build()
    assert caught.value.got == got
    assert expected in caught.value.expected
    assert caught.value.where == where
