"""Cases: tokens and JSON both ways, refusals in one sentence, and packs of real text that any process builds alike."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from harness import tokens
from harness.case import DTYPES, MOST_RANKS, Case
from harness.errors import CaseError
from harness.kinds import KINDS, config_from_text
from suites.harness import fakes

CASE = Case(config="all", lengths=(5, 33, 17), total=64, seed=123)


@st.composite
def any_cases(draw: st.DrawFn, *, longest: int = 1000, widest: int = 31) -> Case:
    """Every form a case can take, far beyond what the harness's own strategies draw."""
    lengths = draw(st.lists(st.integers(1, longest) | st.integers(1, 9), min_size=1, max_size=64))
    paddings = draw(st.lists(st.integers(0, widest), min_size=len(lengths), max_size=len(lengths)) | st.none())
    slots = None
    if paddings is not None:
        slots = tuple(length + padding for length, padding in zip(lengths, paddings, strict=True))
    ranks = draw(st.none() | st.integers(1, MOST_RANKS))
    return Case(
        config=draw(st.sampled_from(KINDS)),
        lengths=tuple(lengths),
        slots=slots,
        total=sum(slots or lengths) + draw(st.integers(0, 50)),
        seed=draw(st.integers(0, 99999)),
        ranks=ranks,
        processes=ranks is not None and draw(st.booleans()),
    )


@pytest.mark.parametrize(
    ("token", "case"),
    [
        ("all/5.33.17+64/s123", CASE),
        ("dense/1/s0", Case(config="dense", lengths=(1,), total=1, seed=0)),
        (
            "csa,index_topk=2/8p3.1x4+40/s7/float32",
            Case(
                config="csa,index_topk=2",
                lengths=(8, 1, 1, 1, 1),
                slots=(11, 1, 1, 1, 1),
                total=40,
                seed=7,
                dtype="float32",
            ),
        ),
        ("hca/4p1.4p1.4/s1", Case(config="hca", lengths=(4, 4, 4), slots=(5, 5, 4), total=14, seed=1)),
        ("all@4/5.33.17+64/s123", replace(CASE, ranks=4)),
        ("all@1/5.33.17+64/s123", replace(CASE, ranks=1)),
        ("all@64p/5.33.17+64/s123/bfloat16", replace(CASE, ranks=64, processes=True, dtype="bfloat16")),
        (
            "csa,index_topk=2@2p/5/s1",
            Case(config="csa,index_topk=2", lengths=(5,), total=5, seed=1, ranks=2, processes=True),
        ),
    ],
)
def test_tokens_by_hand(token: str, case: Case) -> None:
    assert Case.from_token(token) == case
    assert Case.from_token(case.token()) == case


def test_a_token_is_what_a_person_would_write() -> None:
    assert CASE.token() == "all/5.33.17+64/s123"
    for token in ("csa/8p3.1x4.2.2/s7", "csa@4/8p3.1x4.2.2/s7", "csa,index_topk=2@2p/8/s7"):
        assert Case.from_token(token).token() == token


@given(any_cases(), st.sampled_from(DTYPES))
def test_token_and_json_go_both_ways(case: Case, dtype: str) -> None:
    case = replace(case, dtype=dtype)
    assert Case.from_token(case.token()) == case
    assert Case.from_json(json.loads(json.dumps(case.to_json()))) == case


LARGEST = Case(
    config="all",
    lengths=tuple(1000 - index % 7 for index in range(64)),
    slots=tuple(1031 - index % 7 for index in range(64)),
    total=65_999,
    seed=99_999,
    ranks=64,
    processes=True,
)


@given(any_cases())
@example(LARGEST)
def test_a_token_fits_a_line_and_a_shell(case: Case) -> None:
    token = case.token()
    assert len(token) <= tokens.LONGEST == 200
    assert shlex.quote(token) == token


@given(any_cases(longest=9))
def test_a_token_that_fits_is_readable(case: Case) -> None:
    if case.slots is None:
        assert re.fullmatch(r"[a-z]+(@[0-9]+p?)?/[0-9.x]+(\+[0-9]+)?/s[0-9]+", case.token())


@given(any_cases(longest=99999, widest=99))
def test_a_token_too_long_for_a_line_is_exact_all_the_same(case: Case) -> None:
    assert Case.from_token(case.token()) == case


def test_slots_equal_to_lengths_are_no_slots() -> None:
    assert replace(CASE, slots=CASE.lengths) == CASE


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("", "CONFIG[@RANKS[p]]/LENGTHS"),
        ("all/5.33.17", "CONFIG[@RANKS[p]]/LENGTHS"),
        ("all/5.33.17/s", "CONFIG[@RANKS[p]]/LENGTHS"),
        ("all/5.33.17/s1/float64/more", "CONFIG[@RANKS[p]]/LENGTHS"),
        ("all/5.33.17+/s1", "CONFIG[@RANKS[p]]/LENGTHS"),
        ("all@/5/s1", "CONFIG[@RANKS[p]]/LENGTHS"),
        ("all@p/5/s1", "CONFIG[@RANKS[p]]/LENGTHS"),
        ("all@4q/5/s1", "CONFIG[@RANKS[p]]/LENGTHS"),
        ("all@-2/5/s1", "CONFIG[@RANKS[p]]/LENGTHS"),
        ("all@2@2/5/s1", "CONFIG[@RANKS[p]]/LENGTHS"),
        ("all@0/5/s1", "0 ranks"),
        ("all@65p/5/s1", "expected 1 to 64"),
        ("all/5.33.17+64/s1 ", "CONFIG[@RANKS[p]]/LENGTHS"),
        ("all/5..17/s1", "item 1 of the replay token's samples"),
        ("all/5.-3/s1", "item 1"),
        ("all/5p/s1", "item 0"),
        ("all/0/s1", "at least 1"),
        ("all/5x0/s1", "at least one"),
        ("all/5.33.17+54/s1", "total 54"),
        ("all/999999999/s1", "up to"),
        ("nokind/5/s1", "kind 'nokind'"),
        ("all,index_topk/5/s1", "KIND,field=value"),
        ("all,index_topk=2,index_topk=3/5/s1", "index_topk twice"),
        ("all/5/s1/float16", "dtype 'float16'"),
        ("all/5/s9999999999999999999", "seed"),
        ("all/z/s1", "zCOUNT"),
        ("all/z2.3.0.A/s1", "base 64"),
        ("all/z2.0.0.AAAA/s1", "zCOUNT"),
        ("all/z2.3.0._____/s1", "base 64"),
        ("all/z2.3.0.____/s1", "more digits"),
        ("all/é/s1", "item 0"),
        ("all/٣/s1", "item 0"),
        ("x" * 5000, "CONFIG[@RANKS[p]]/LENGTHS"),
    ],
)
def test_a_malformed_token_is_refused_in_one_sentence(token: str, words: str) -> None:
    with pytest.raises(CaseError) as caught:
        Case.from_token(token)
    sentence = str(caught.value)
    assert sentence.startswith("got ")
    assert "; expected " in sentence
    assert "; where: " in sentence
    assert words in sentence
    assert "\n" not in sentence
    assert len(sentence) < 300


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema_version": 2}, "schema_version 2"),
        ({"lengths": []}, "no sample"),
        ({"lengths": [5, True, 17]}, "whole number"),
        ({"lengths": "5.33"}, "a list"),
        ({"slots": [5, 33]}, "2 slots"),
        ({"slots": [5, 32, 17]}, "slot of 32 tokens"),
        ({"seed": -1}, "seed -1"),
        ({"seed": 1.5}, "seed 1.5"),
        ({"config": 3}, "a text"),
        ({"more": 1}, "keys"),
        ({"ranks": 0}, "0 ranks"),
        ({"ranks": "4"}, "whole number"),
        ({"ranks": True}, "whole number"),
        ({"ranks": 4, "processes": 1}, "true or false"),
        ({"processes": True}, "processes without ranks"),
    ],
)
def test_malformed_json_is_refused_in_one_sentence(change: dict[str, object], words: str) -> None:
    with pytest.raises(CaseError, match=words):
        Case.from_json({**CASE.to_json(), **change})


@pytest.mark.parametrize("data", [None, [], "all/5/s1", {}])
def test_json_of_something_else_is_refused(data: object) -> None:
    with pytest.raises(CaseError, match="an object with schema_version"):
        Case.from_json(data)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("all,no_such_field=1", "field 'no_such_field'"),
        ("all,index_topk=two", "index_topk=two"),
        ("all,index_topk=1.5", "type int"),
        ("all,rope_scaling=7", "rope_scaling=7"),
        ("all,compress_ratios=0:4", "compress_ratios"),
        ("all,num_experts_per_tok=99", "num_experts_per_tok"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(text: str, words: str) -> None:
    with pytest.raises(CaseError, match=words):
        config_from_text(text)


def test_changes_reach_the_configuration() -> None:
    config = config_from_text("csa,index_topk=3,rms_norm_eps=1e-5,compress_ratios=4:4:0:4,fixed_shape_experts=false")
    assert (config.index_topk, config.rms_norm_eps, config.compress_ratios) == (3, 1e-5, (4, 4, 0, 4))
    assert config.fixed_shape_experts is False
    assert config_from_text("all,rope_scaling=none,fixed_shape_experts=none").rope_scaling is None


@pytest.mark.parametrize(("kind", "expected"), [("dense", {"dense"}), ("csa", {"csa"}), ("hca", {"hca"})])
def test_a_kind_alone_has_no_other_layer(kind: str, expected: set[str]) -> None:
    config = config_from_text(kind)
    layers = config.num_hidden_layers + config.num_nextn_predict_layers
    assert {config.kind(layer) for layer in range(layers)} == expected
    assert config.num_nextn_predict_layers == 2
    assert 0 < config.num_hash_layers < config.num_hidden_layers


def test_the_pack_holds_the_text_and_knows_its_padding() -> None:
    case = Case.from_token("all/5p3.33.17+64/s123")
    pack = case.pack(fakes.corpus())
    assert pack.layout.lengths == (5, 33, 17)
    assert pack.layout.starts == (0, 8, 41)
    assert pack.tokens.shape == (64,)
    assert int(pack.tokens.max()) < case.v4config().vocab_size
    for sample, start in enumerate(pack.layout.starts):
        tokens, flags = fakes.corpus().text(123, sample, length=case.lengths[sample])
        assert pack.tokens[start : start + case.lengths[sample]].tolist() == [token % 512 for token in tokens]
        assert pack.supervised[start : start + case.lengths[sample]].tolist() == flags
    padding = pack.tokens[~pack.layout.real]
    assert set(padding.tolist()) == {fakes.corpus().frequent_token % 512}
    assert not pack.supervised[~pack.layout.real].any()


@given(any_cases(longest=60), st.integers(0, 63))
def test_a_shorter_sample_keeps_the_beginning_of_its_text(case: Case, which: int) -> None:
    sample = which % len(case.lengths)
    shorter = (*case.lengths[:sample], max(1, case.lengths[sample] // 2), *case.lengths[sample + 1 :])
    small = Case(config=case.config, lengths=shorter, total=sum(shorter), seed=case.seed)
    before, after = case.pack(fakes.corpus()), small.pack(fakes.corpus())
    start, length = after.layout.starts[sample], shorter[sample]
    other = before.layout.starts[sample]
    assert torch.equal(after.tokens[start : start + length], before.tokens[other : other + length])


_CONTENT = """
import hashlib
from harness import tokens
from harness.case import Case
from suites.harness import fakes
pack = Case.from_token("all/5p3.33.17+64/s123").pack(fakes.corpus())
text = repr((pack.tokens.tolist(), pack.supervised.tolist(), fakes.corpus().digest))
"""


def test_another_process_builds_the_same_pack() -> None:
    here: dict[str, str] = {}
    exec(_CONTENT, here)
    code = _CONTENT + "print(hashlib.sha256(text.encode()).hexdigest())"
    # A hash seed of its own: text content must not follow from Python's hashes of strings.
    there = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "77"},
    )
    assert there.stdout.strip() == hashlib.sha256(here["text"].encode()).hexdigest()
