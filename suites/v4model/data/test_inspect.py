"""A pack as rows: the labels shown are those that the model trains on."""

from __future__ import annotations

import pytest

from suites.v4model.data.made import located
from v4model.data.inspect import TokenRow, view_pack
from v4model.data.packed import PackedData, pack_samples
from v4model.data.recipe import Recipe
from v4model.data.sources import Sample
from v4model.data.tokenizer import ChatTokenizer
from v4model.errors import DataError

SHORT = Sample((97, 98, 99), (False, False, True))
LONG = Sample(tuple(range(100, 110)), (False,) * 8 + (True, False))


@pytest.fixture(scope="module")
def tokenizer() -> ChatTokenizer:
    return ChatTokenizer.of_bytes()


@pytest.fixture(scope="module")
def data() -> PackedData:
    recipe = Recipe(window=20, mode="sequential", align=4)
    return pack_samples(located([SHORT, LONG]), recipe=recipe)


def test_labels_are_next_tokens_of_the_same_sample(data: PackedData, tokenizer: ChatTokenizer) -> None:
    view = view_pack(data, 0, tokenizer=tokenizer)
    assert view.heading == (
        "pack 0 of 1: 2 samples, 13 of 20 tokens real, 2 labels\ncu_seqlens 0, 3, 13\ncu_seqlens_padded 0, 4, 16"
    )
    assert [part.title for part in view.parts] == [
        "sample 0 of 2: tokens [0, 3), 1 labels, record 1",
        "padding: tokens [3, 4)",
        "sample 1 of 2: tokens [4, 14), 1 labels, record 2",
        "padding: tokens [14, 20)",
    ]
    assert view.parts[0].rows == (
        TokenRow(token=0, position=0, id=97, text="a", supervised=False, label=98, label_text="b", learned=False),
        TokenRow(token=1, position=1, id=98, text="b", supervised=False, label=99, label_text="c", learned=True),
        TokenRow(token=2, position=2, id=99, text="c", supervised=True, label=None, label_text="", learned=False),
    )
    ends = [row and (row.token, row.position, row.label, row.learned) for row in view.parts[2].rows]
    assert ends == [
        (4, 0, 101, False),
        (5, 1, 102, False),
        (6, 2, 103, False),
        None,
        (11, 7, 108, True),
        (12, 8, 109, False),
        (13, 9, None, False),
    ]


def test_a_range_shows_all_of_its_tokens_and_no_other(data: PackedData, tokenizer: ChatTokenizer) -> None:
    view = view_pack(data, 0, tokenizer=tokenizer, tokens=(2, 13))
    tokens = [[row.token for row in part.rows if row] for part in view.parts]
    assert tokens == [[2], [], list(range(4, 13))]
    assert view.parts[1].title == "padding: tokens [3, 4)"


def test_a_piece_says_where_its_record_goes_on(tokenizer: ChatTokenizer) -> None:
    whole = Sample(LONG.tokens, (True,) * 10)
    data = pack_samples(located([whole]), recipe=Recipe(window=5, too_long="split", mode="sequential"))
    (part,) = view_pack(data, 1, tokenizer=tokenizer).parts
    assert part.title == "sample 0 of 1: tokens [0, 5), 4 labels, record 1 from its token 5"


@pytest.mark.parametrize("tokens", [(0, 21), (4, 4), (-1, 3)])
def test_tokens_outside_the_pack_are_refused(
    data: PackedData, tokenizer: ChatTokenizer, tokens: tuple[int, int]
) -> None:
    with pytest.raises(DataError, match="a range inside 0:20"):
        view_pack(data, 0, tokenizer=tokenizer, tokens=tokens)
    with pytest.raises(DataError, match="got pack 1"):
        view_pack(data, 1, tokenizer=tokenizer)
