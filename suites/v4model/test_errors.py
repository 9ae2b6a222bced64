"""Errors: got / expected / where in the text and as attributes, also across process borders."""

from __future__ import annotations

import pickle

import pytest

from v4model import ConfigError, DataError, PackError, V4Error, WeightError


@pytest.mark.parametrize("kind", [ConfigError, DataError, PackError, WeightError])
def test_says_got_expected_and_where(kind: type[V4Error]) -> None:
    error = kind(got="a slot of 3", expected="at least 4", where="sample 1 of 2")
    assert str(error) == "got a slot of 3; expected at least 4; where: sample 1 of 2"
    assert isinstance(error, V4Error)
    assert isinstance(error, ValueError)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.got, copy.expected, copy.where) == (error.got, error.expected, error.where)


def test_where_is_left_out_when_there_is_only_one_place() -> None:
    assert str(PackError(got="None", expected="a layout")) == "got None; expected a layout"
