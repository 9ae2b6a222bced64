"""A rename is a question with exactly one answer, or none."""

from __future__ import annotations

import pytest

from harness.baseline.renames import find_renames

A = "suites/test_a.py"


@pytest.mark.parametrize(
    ("removed", "added", "expected"),
    [
        ([f"{A}::test_holds"], [f"{A}::test_it_holds"], {f"{A}::test_holds": f"{A}::test_it_holds"}),
        ([f"{A}::test_holds[1]"], [f"{A}::test_it_holds[1]"], {f"{A}::test_holds[1]": f"{A}::test_it_holds[1]"}),
        (
            [f"{A}::test_holds"],
            ["suites/b/test_b.py::test_holds"],
            {f"{A}::test_holds": "suites/b/test_b.py::test_holds"},
        ),
        ([f"{A}::test_holds[1]"], [f"{A}::test_holds[2]"], {}),
        ([f"{A}::test_holds"], [f"{A}::test_nothing_alike"], {}),
        ([f"{A}::test_holds"], [f"{A}::test_holds_a", f"{A}::test_holds_b"], {}),
        ([f"{A}::test_hold", f"{A}::test_holds"], [f"{A}::test_holding"], {}),
        ([f"{A}::test_holds"], [f"{A}::test_holds_now", "suites/test_b.py::test_holds"], {}),
        ([f"{A}::test_holds"], [], {}),
        ([], [f"{A}::test_holds"], {}),
    ],
)
def test_only_a_unique_match_counts(removed: list[str], added: list[str], expected: dict[str, str]) -> None:
    assert find_renames(removed, added) == expected


def test_a_parametrised_test_keeps_its_cases() -> None:
    old = [f"{A}::test_number[{n}]" for n in range(200)]
    new = [f"{A}::test_numbers[{n}]" for n in range(200)]
    assert find_renames(old, new) == dict(zip(old, new, strict=True))


def test_a_large_change_costs_no_square() -> None:
    old = [f"suites/test_{n}.py::test_{n}" for n in range(5000)]
    new = [f"{A}::other_{n}" for n in range(5000)]
    assert find_renames(old, new) == {}
