"""Witnesses: one sentence that a person can act on, and JSON both ways."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.witness import Place, Reading, Row, Witness

FULL = Witness(
    property="query_sees_only_its_sample",
    depth=2,
    query=Place(1, 0, 5),
    source=Place(0, 4, 4),
    branch="pool",
    layer="layers.1.self_attn",
    what="logits moved",
    magnitude=0.03125,
    bound=0.0,
    got="1.5",
    expected="1.25",
)


def test_the_sentence_names_everything() -> None:
    assert FULL.sentence() == (
        "query_sees_only_its_sample: at MTP depth 2 query sample 1, position 0 (token 5) read sample 0, position 4 "
        "(token 4) through the pool branch of layers.1.self_attn: logits moved, by 0.0312 where no difference is "
        "allowed; got 1.5; expected 1.25"
    )


@pytest.mark.parametrize(
    ("witness", "sentence"),
    [
        (
            Witness(property="p", what="loss differs", magnitude=1e-3, bound=1e-9),
            "p: in the trunk: loss differs, by 0.001 where the bound is 1e-09",
        ),
        (
            Witness(property="p", layer="layers.0.hc.base", branch="gradient", what="differs", magnitude=1, bound=0.5),
            "p: in the trunk through the gradient branch of layers.0.hc.base: differs, by 1 where the bound is 0.5",
        ),
        (
            Witness(property="p", layer="lm_head", source=Place(-1, 0, 9), what="moved", magnitude=math.inf, bound=0.0),
            "p: in the trunk something read padding (token 9) in lm_head: moved, by inf where no difference is allowed",
        ),
        (
            Witness(property="p", branch="data", what="a record is in no pack", magnitude=1, bound=0.0),
            "p: a record is in no pack, by 1 where no difference is allowed",
        ),
    ],
)
def test_the_sentence_leaves_out_what_is_unknown(witness: Witness, sentence: str) -> None:
    assert witness.sentence() == sentence


WINDOW = Row(first=Place(1, 4, 9), last=Place(1, 7, 12))


@pytest.mark.parametrize(
    ("row", "clause"),
    [
        (WINDOW, "reads the pooled row of tokens 9 to 12 (sample 1, window 1)"),
        (
            replace(WINDOW, reading=Reading.MISSED),
            "does not read the pooled row of tokens 9 to 12 (sample 1, window 1)",
        ),
        (
            Row(first=Place(1, 3, 8), last=Place(1, 6, 11), reading=Reading.DIFFERENT),
            "reads the pooled row of tokens 8 to 11 (sample 1, from position 3 on), which differs",
        ),
        (
            Row(first=Place(0, 3, 3), last=Place(1, 1, 6)),
            "reads the pooled row of tokens 3 to 6 (sample 0 and sample 1 mixed)",
        ),
        (
            Row(first=Place(-1, 0, 3), last=Place(1, 1, 6)),
            "reads the pooled row of tokens 3 to 6 (padding and sample 1 mixed)",
        ),
        (Row(first=Place(-1, 0, 3), last=Place(-1, 0, 6)), "reads the pooled row of tokens 3 to 6 (padding)"),
        (Row(first=Place(0, 3, 3), last=Place(0, 3, 3)), "reads token 3 (sample 0, position 3)"),
        (Row(first=Place(-1, 0, 3), last=Place(-1, 0, 3)), "reads token 3 (padding)"),
        (Row(first=None, last=None), "reads a row that is not in this pack"),
    ],
)
def test_a_row_says_which_it_is_and_how_it_is_read(row: Row, clause: str) -> None:
    assert str(row) == clause


def test_the_sentence_tells_the_first_wrong_row() -> None:
    located = replace(FULL, at=Place(1, 0, 5), row=WINDOW)
    through = "through the pool branch of layers.1.self_attn"
    assert f"{through}, where it reads the pooled row of tokens 9 to 12" in located.sentence()
    assert f"{through}, where token 7 reads the" in replace(located, at=Place(1, 2, 7)).sentence()
    assert f"{through}, at token 7: logits moved" in replace(located, at=Place(1, 2, 7), row=None).sentence()
    # Where the row is the source itself it has been said already.
    source = Row(first=FULL.source, last=FULL.source)
    assert f"{through}: logits moved" in replace(located, row=source).sentence()
    compared = replace(located, source=None).sentence()
    assert "(token 5) first differs in the pool branch of layers.1.self_attn, where it reads" in compared


_places = st.none() | st.builds(Place, st.integers(-1, 9), st.integers(0, 99), st.integers(0, 999))
_rows = st.none() | st.builds(Row, first=_places, last=_places, reading=st.sampled_from(Reading))
_texts = st.none() | st.text(max_size=9)
_numbers = st.floats(allow_nan=False)


@given(
    st.builds(
        Witness,
        property=st.text(max_size=9),
        depth=st.integers(0, 3),
        query=_places,
        source=_places,
        branch=st.sampled_from(["local", "pool", "unknown"]),
        layer=_texts,
        at=_places,
        row=_rows,
        what=st.text(max_size=9),
        magnitude=_numbers,
        bound=_numbers,
        got=_texts,
        expected=_texts,
    )
)
def test_json_goes_both_ways(witness: Witness) -> None:
    text = json.dumps(witness.to_json(), allow_nan=False)
    assert Witness.from_json(json.loads(text)) == witness
    assert "\n" not in FULL.sentence()


def test_a_magnitude_that_is_not_a_number_survives_json() -> None:
    data = {**FULL.to_json(), "magnitude": "nan"}
    assert math.isnan(Witness.from_json(json.loads(json.dumps(data))).magnitude)
