"""A matrix read back, and several joined."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from harness.matrix.merge import joined, read_matrix
from suites.harness.matrix.test_result import CAUGHT, MISSED, QUIET, REWRITE, of


def test_what_is_written_is_read_back() -> None:
    written = of(QUIET, CAUGHT, MISSED, REWRITE).to_json()
    again = read_matrix(json.loads(json.dumps(written, allow_nan=False)))
    assert again.to_json() == written
    assert again.rows[1].parity_here is not None
    assert again.rows[1].parity_here.sees, "a number that JSON cannot hold is beyond any bound"


def test_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="schema_version 9"):
        read_matrix({**of(QUIET).to_json(), "schema_version": 9})


def test_joined_rows_have_the_order_of_the_names() -> None:
    earlier = replace(of(QUIET), started="2025-12-31T00:00:00+00:00")
    both = joined([of(MISSED, CAUGHT), earlier], order=["healthy", "A1", "A2", "A3"])
    assert [row.name for row in both.rows] == ["healthy", "A1", "A2"]
    assert (both.started, both.seconds, both.whole) == ("2025-12-31T00:00:00+00:00", 122.8, False)
    assert joined([of(MISSED, CAUGHT), of(QUIET)], order=["healthy", "A1", "A2"]).whole
