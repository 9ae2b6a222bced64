"""What a witness of ranks says: the rank, the row, the nearest cut, or the cuts where no row is wrong."""

from __future__ import annotations

from harness.case import Case
from harness.catalogue import find_fault, find_property, find_subject
from harness.engine import decide
from harness.verdict import Verdict
from harness.witness import Witness
from suites.harness import fakes


def _verdict(fault: str | None, token: str) -> Verdict:
    name = "cp_matches_one_rank" if fault is None else find_fault(fault).expected
    planted = None if fault is None else find_fault(fault)
    return decide(find_property(name), find_subject("v4model"), Case.from_token(token), fakes.corpus(), fault=planted)


def _witness(fault: str, token: str) -> Witness:
    witness = _verdict(fault, token).witness
    assert witness is not None
    return witness


def test_a_row_behind_a_cut_is_named_with_its_rank_and_the_cut() -> None:
    witness = _witness("E2", "dense@2/8.16/s1")
    assert witness.query is not None
    # Two layers, a window of 8: from the cut at 12 on for at most twice 7 tokens.
    assert 12 <= witness.query.token < 24
    between = witness.query.token - 12
    distance = {0: "right", 1: "1 token"}.get(between, f"{between} tokens")
    assert f"on rank 1 of 2, {distance} behind the cut at token 12 (at position 4 of sample 1)" in witness.what


def test_a_row_before_a_cut_is_named_by_that_cut() -> None:
    witness = _witness("D5", "dense@2/8.16/s1")
    assert witness.query is not None
    assert witness.query.token == 11
    assert "on rank 0 of 2, right before the cut at token 12 (at position 4 of sample 1)" in witness.what


def test_of_two_cuts_the_nearer_is_named() -> None:
    # Token 19 of a rank with tokens 10 to 19.
    assert "on rank 1 of 3, right before the cut at token 20 (at position 20" in _witness("D5", "dense@3/30/s1").what


def test_a_sum_is_found_at_the_row_whose_gradient_differs_most() -> None:
    witness = _witness("E16b", "dense@2/8.16/s1")
    assert witness.what.startswith("the sum of main differs from one rank, and the gradient at this embedding most")
    assert witness.query is not None
    assert "the cut at token 12" in witness.what
    assert "the cut at token 9 (at the start of sample 1)" in _witness("E16b", "dense@2/9x2/s1").what


def test_a_sum_without_a_wrong_row_comes_with_the_cuts_and_the_labels() -> None:
    witness = _witness("E15", "dense@4/6/s1")
    assert witness.query is None
    assert "cut at token 2 (at position 2 of sample 0), token 4 (at position 4 of sample 0), token 6 (in padding)" in (
        witness.what
    )
    assert witness.what.endswith("labels by rank: 1, 1, 0, 0")


def test_ranks_that_disagree_are_named_with_the_cuts() -> None:
    witness = _witness("E10", "csa@2/8.5.9/s1")
    assert witness.what.startswith("rank 0 expects 2 rows of rank 1 in all_rows in trunk.layers.0.compressor, which")
    assert witness.what.endswith("; cut at token 11 (at position 3 of sample 1)")


def test_healthy_ranks_have_no_witness_even_where_cuts_lie_behind_all_tokens() -> None:
    assert _verdict(None, "all@4/1/s0").witness is None
