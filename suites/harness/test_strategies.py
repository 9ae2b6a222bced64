"""Strategies: cases within bounds, corners reached on purpose, and shrinking to the smallest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import find, settings

from harness.case import Case
from harness.engine.draw import Draw
from harness.engine.row import Unit
from harness.errors import CaseError
from harness.kinds import KINDS, config_from_text
from harness.strategies import PackSize, cases, corner_lengths

NATURAL = (21, 34, 47, 55)
MANY = 200


FORMS: dict[str, tuple[float, Callable[[Case], bool]]] = {
    "interior padding": (0.2, lambda case: case.slots is not None),
    "no interior padding": (0.2, lambda case: case.slots is None),
    "tail": (0.2, lambda case: case.total > sum(case.slots or case.lengths)),
    "no tail": (0.2, lambda case: case.total == sum(case.slots or case.lengths)),
    "short sample": (0.3, lambda case: min(case.lengths) <= 8),
    "two samples": (0.05, lambda case: len(case.lengths) == 2),
    "six samples": (0.05, lambda case: len(case.lengths) == 6),
}


def drawn(kind: str) -> list[Case]:
    """Many cases of a kind, the same in every run."""
    seen: list[Case] = []
    Draw(Unit(kind, ()), cases(kind, natural=NATURAL), layouts=MANY, seed=0).run(seen.append)
    return seen


# One test a kind: with the drawing apart from the checks, every worker of a parallel run would draw for itself.
@pytest.mark.parametrize("kind", KINDS)
def test_what_cases_of_a_kind_are_like(kind: str) -> None:
    config = config_from_text(kind)
    all_cases = drawn(kind)
    wanted = [case for case in all_cases if 60 <= case.total <= 200 and 2 <= len(case.lengths) <= 6]
    lengths = {length for case in wanted for length in case.lengths}
    # The search also draws the smallest, but none larger, and hardly any twice.
    assert len(all_cases) == MANY
    assert len(wanted) >= 0.97 * MANY
    assert all(case.total <= 200 and len(case.lengths) <= 6 for case in all_cases)
    assert len(set(all_cases)) >= 0.95 * MANY
    assert {case.kind for case in all_cases} == {kind}
    assert {case.dtype for case in all_cases} == {"float64"}
    assert 0.3 <= sum(case.config == kind for case in all_cases) / MANY <= 0.6
    # Corner, natural and plain lengths are mixed.
    assert set(corner_lengths(ratios=config.ratios, window=config.sliding_window)) <= lengths
    assert set(NATURAL) <= lengths
    assert len(lengths) > 35
    # So are the forms of a pack.
    shares = {name: sum(map(seen, wanted)) / len(wanted) for name, (_, seen) in FORMS.items()}
    assert {name: share for name, share in shares.items() if share < FORMS[name][0]} == {}
    # Most samples start off a multiple of the ratio.
    if config.ratios:
        starts = [start for case in wanted for start in case.layout().starts[1:]]
        assert sum(start % min(config.ratios) > 0 for start in starts) >= 0.65 * len(starts)


def test_corner_lengths_by_hand() -> None:
    assert corner_lengths(ratios=(16,), window=10) == (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 16, 17, 31, 32, 33)
    assert corner_lengths(ratios=(), window=1) == (1, 2, 3, 4, 5, 6, 7, 8)


def _smallest(condition: Callable[[Case], bool]) -> str:
    return find(
        cases("all", natural=NATURAL), condition, settings=settings(max_examples=500, database=None, deadline=None)
    ).token()


@pytest.mark.parametrize(
    ("condition", "token"),
    [
        (lambda _: True, "all/1/s0"),
        (lambda case: len(case.lengths) > 1, "all/1.1/s0"),
        (lambda case: case.lengths[-1] >= 17 and len(case.lengths) > 1, "all/1.17/s0"),
        (lambda case: case.slots is not None and case.slots[0] > case.lengths[0], "all/1p1/s0"),
        (lambda case: case.total > sum(case.slots or case.lengths), "all/1+2/s0"),
        (lambda case: sum(case.lengths) >= 40, "all/40/s0"),
    ],
    ids=["any", "two samples", "a long last one", "interior padding", "tail", "many tokens"],
)
def test_shrinking_ends_at_the_smallest(condition: Callable[[Case], bool], token: str) -> None:
    assert _smallest(condition) == token


def test_other_sizes_can_be_asked_for() -> None:
    size = PackSize(min_samples=1, max_samples=2, min_tokens=10, max_tokens=30)
    case = find(
        cases("csa", size=size), lambda case: case.total > 20, settings=settings(max_examples=500, database=None)
    )
    assert case.total == 21


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(CaseError, match="kind 'cas'"):
        find(cases("cas"), lambda _: True, settings=settings(database=None))
