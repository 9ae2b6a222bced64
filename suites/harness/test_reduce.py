"""Reducing a case: fewer samples before all, and no step that loses the violation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.case import Case
from harness.engine.reduce import reduced


@pytest.mark.parametrize(
    ("token", "violates", "smallest"),
    [
        ("csa/1x4/s0", lambda case: sum(case.lengths) >= 4 and len(case.lengths) > 1, "csa/3.1/s0"),
        ("all/9.30.7/s5", lambda _: True, "all/1/s0"),
        ("csa/9p3.30.7+60/s5", lambda case: max(case.lengths) >= 8, "csa/8/s0"),
        ("csa/9p3.8+30/s5", lambda case: case.slots is not None and case.total > 10, "csa/8p3/s0"),
        ("csa/4.4+12/s1", lambda case: case.total > sum(case.slots or case.lengths), "csa/1+5/s0"),
        ("csa,hc_mult=2,index_topk=1/9/s0/float32", lambda case: "topk" in case.config, "csa,index_topk=1/1/s0"),
        ("csa@4/30.2/s0", lambda case: case.ranks == 4 and case.total >= 5, "csa@4/5/s0"),
        ("hca,compress_ratios=8:8:8,num_nextn_predict_layers=1/2.2/s0", lambda case: "," in case.config,
         "hca,compress_ratios=8:8:8,num_nextn_predict_layers=1/1/s0"),
        ("all/15.3/s9", lambda case: case.lengths[0] % 5 == 0 and case.seed > 1, "all/5/s9"),
        ("csa/1.2.3.4.5.6.7.8.9/s1", lambda case: {4, 8} <= set(case.lengths), "csa/4.8/s0"),
    ],
)  # fmt: skip
def test_the_smallest_that_still_violates(token: str, violates: Callable[[Case], bool], smallest: str) -> None:
    asked: list[Case] = []

    def asks(case: Case) -> bool:
        asked.append(case)
        return violates(case)

    case = Case.from_token(token)
    assert reduced(case, asks).token() == smallest
    assert len(set(asked)) < 60
    assert case not in asked


def test_nothing_smaller_leaves_the_case() -> None:
    case = Case.from_token("all/5.7/s3")
    assert reduced(case, lambda _: False) == case
