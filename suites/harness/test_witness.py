"""Witnesses: one sentence that a person can act on, and JSON both ways."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.witness import Place, Witness

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
    ],
)
def test_the_sentence_leaves_out_what_is_unknown(witness: Witness, sentence: str) -> None:
    assert witness.sentence() == sentence


_places = st.none() | st.builds(Place, st.integers(-1, 9), st.integers(0, 99), st.integers(0, 999))
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
