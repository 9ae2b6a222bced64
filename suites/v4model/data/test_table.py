"""Flat samples, and the named policies for those that do not fit."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from suites.v4model.data.made import located, made_samples
from v4model.data.recipe import Recipe
from v4model.data.sources import Located, Sample
from v4model.data.table import Losses, tabulate
from v4model.errors import DataError, UnsupervisedError

RECIPE = Recipe(window=4)
LONG = Sample((10, 11, 12, 13, 14, 15, 16, 17, 18), (False, False, False, True, True, True, True, True, True))
SHORT = Sample((20, 21), (False, True))
FOUND: list[Located] = [("a", SHORT), ("b", LONG)]
NOTHING = UnsupervisedError(got="an empty text", expected="text", where="c")


def test_samples_lie_one_after_another() -> None:
    table, losses = tabulate([("a", SHORT), ("b", LONG)], recipe=Recipe(window=9))
    assert table.tokens.tolist() == [*SHORT.tokens, *LONG.tokens]
    assert table.tokens.dtype == np.int32
    assert table.supervised.tolist() == [*SHORT.supervised, *LONG.supervised]
    assert [table.lengths.tolist(), table.record.tolist(), table.offset.tolist()] == [[2, 9], [0, 1], [0, 0]]
    assert table.labels.tolist() == [1, 6]
    assert losses == Losses()


def test_a_first_token_is_never_a_label() -> None:
    table, _ = tabulate([("a", Sample((1, 2, 3), (True, False, True)))], recipe=RECIPE)
    assert table.labels.tolist() == [1]


def test_take_reorders_whole_samples() -> None:
    samples = made_samples([5, 2, 7, 3], seed=3)
    table, _ = tabulate(located(samples), recipe=Recipe(window=8))
    taken = table.take(np.array([2, 0, 3]))
    assert taken.tokens.tolist() == [token for index in (2, 0, 3) for token in samples[index].tokens]
    assert taken.supervised.tolist() == [flag for index in (2, 0, 3) for flag in samples[index].supervised]
    assert (taken.record.tolist(), taken.labels.tolist()) == ([2, 0, 3], table.labels[[2, 0, 3]].tolist())


def test_too_long_error_names_the_sample() -> None:
    with pytest.raises(DataError) as caught:
        tabulate(FOUND, recipe=RECIPE)
    assert (caught.value.got, caught.value.where) == ("a sample of 9 tokens", "b")
    assert caught.value.expected == "at most the window's 4 (or too_long 'truncate' or 'split')"


def test_too_long_truncate_keeps_the_first_tokens_and_counts_the_rest() -> None:
    table, losses = tabulate(FOUND, recipe=replace(RECIPE, too_long="truncate"))
    assert table.tokens.tolist() == [20, 21, 10, 11, 12, 13]
    assert losses == Losses(truncated_samples=1, truncated_tokens=5, truncated_labels=5)


def test_too_long_split_keeps_every_token() -> None:
    # The last piece is one token: a label that no position predicts, so nothing is learned in it.
    with pytest.raises(UnsupervisedError) as caught:
        tabulate(FOUND, recipe=replace(RECIPE, too_long="split"))
    assert caught.value.where == "b, tokens [8, 9)"
    table, losses = tabulate(FOUND, recipe=replace(RECIPE, too_long="split", unsupervised="drop"))
    assert table.tokens.tolist() == [20, 21, 10, 11, 12, 13, 14, 15, 16, 17]
    assert (table.record.tolist(), table.offset.tolist()) == ([0, 1, 1], [0, 0, 4])
    assert losses == Losses(split_samples=1, split_labels=2, dropped_samples=1, dropped_tokens=1)
    assert table.labels.sum() == 7 - losses.split_labels


def test_a_truncated_sample_without_a_label_is_not_trained_on() -> None:
    late = Sample(LONG.tokens, (*[False] * 8, True))
    with pytest.raises(UnsupervisedError, match=r"unsupervised 'drop'\); where: b, tokens \[0, 4\)"):
        tabulate([("b", late)], recipe=replace(RECIPE, too_long="truncate"))


def test_records_without_an_answer_are_refused_or_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UnsupervisedError, match=r"got an empty text; expected text \(or unsupervised 'drop'\)"):
        tabulate([("a", SHORT), ("c", NOTHING)], recipe=RECIPE)
    with caplog.at_level(logging.INFO):
        table, losses = tabulate([("c", NOTHING), ("a", SHORT)], recipe=replace(RECIPE, unsupervised="drop"))
    assert losses == Losses(dropped_samples=1)
    assert table.record.tolist() == [1]
    assert [record.message for record in caplog.records] == [
        "dropped: got an empty text; expected text; where: c",
        "dropped 1 samples in which nothing is learned",
    ]


def test_nothing_left_is_refused() -> None:
    with pytest.raises(DataError, match="no sample with a label"):
        tabulate([("c", NOTHING)], recipe=replace(RECIPE, unsupervised="drop"))
