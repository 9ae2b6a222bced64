"""Recipes: refused when they make no sense, and keyed by everything that changes packs."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from v4model.data import recipe as recipe_module
from v4model.data.recipe import Recipe
from v4model.errors import DataError

BASE = Recipe(window=4096)
# Another value for every field: a new field without one fails here, and then has to be in the key.
OTHERS: dict[str, Any] = {
    "window": 8192,
    "mode": "sequential",
    "align": 4,
    "ranks": 3,
    "seed": 1,
    "too_long": "split",
    "unsupervised": "drop",
}


def key(recipe: Recipe, *, source: str = "s", tokenizer: str = "t") -> str:
    return recipe.key(source_digest=source, tokenizer_digest=tokenizer)


@pytest.mark.parametrize("name", [field.name for field in fields(Recipe)])
def test_every_choice_changes_the_key(name: str) -> None:
    assert key(replace(BASE, **{name: OTHERS[name]})) != key(BASE)


def test_text_tokenizer_template_and_format_change_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {key(BASE), key(BASE, source="other"), key(BASE, tokenizer="other")}
    for name, value in (("TEMPLATE", "other"), ("FORMAT", 0)):
        with monkeypatch.context() as patched:
            patched.setattr(recipe_module, name, value)
            keys.add(key(BASE))
    assert len(keys) == 5


def test_ranks_count_only_where_they_change_the_row() -> None:
    assert [replace(BASE, ranks=ranks).row_tokens for ranks in (1, 4, 3)] == [4096, 4096, 4098]
    assert key(replace(BASE, ranks=4)) == key(BASE)


@pytest.mark.parametrize(
    ("changes", "got", "expected"),
    [
        ({"window": 1}, "window 1", "at least 2"),
        ({"align": 0}, "align 0", "at least 1"),
        ({"ranks": 0}, "ranks 0", "at least 1"),
        ({"seed": -1}, "seed -1", "at least 0"),
        ({"align": 3}, "window 4096 with align 3", "a window that is a multiple of align"),
        ({"mode": "best"}, "mode 'best'", "one of best-fit, sequential, padded"),
        ({"too_long": "cut"}, "too_long 'cut'", "one of error, truncate, split"),
        ({"unsupervised": "keep"}, "unsupervised 'keep'", "one of error, drop"),
    ],
)
def test_senseless_recipes_are_refused(changes: dict[str, Any], got: str, expected: str) -> None:
    with pytest.raises(DataError) as caught:
        replace(BASE, **changes)
    assert (caught.value.got, caught.value.expected) == (got, expected)
