"""From a file to packs through the cache: the same packs, and never those of another file, tokenizer or recipe."""

from __future__ import annotations

import hashlib
import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from v4model.data import load
from v4model.data.load import load_packs
from v4model.data.packed import PackedData
from v4model.data.recipe import FORMAT, Recipe
from v4model.data.sources import open_source
from v4model.data.tokenizer import load_tokenizer

RECIPE = Recipe(window=64)


def write(path: Path, *answers: str) -> Path:
    path.write_text(json.dumps([{"instruction": "Say.", "input": "", "output": answer} for answer in answers]))
    return path


def packs(path: Path, cache: Path | None, *, recipe: Recipe = RECIPE, tokenizer: str = "bytes") -> PackedData:
    return load_packs(open_source(path), tokenizer=load_tokenizer(tokenizer), recipe=recipe, cache=cache)


def entries(folder: Path) -> int:
    return len(list(folder.iterdir()))


def test_cached_packs_are_those_without_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cache = write(tmp_path / "a.json", "x" * 30, "y" * 9, "z"), tmp_path / "cache"
    plain, built = packs(path, None), packs(path, cache)
    monkeypatch.setattr(load, "pack_samples", None)  # what is read again is not packed again
    read = packs(path, cache)
    for data in (built, read):
        assert data.to_arrays().keys() == plain.to_arrays().keys()
        assert all(np.array_equal(data.to_arrays()[name], array) for name, array in plain.to_arrays().items())


def test_another_text_tokenizer_or_recipe_is_another_entry(tmp_path: Path) -> None:
    path, cache = write(tmp_path / "a.json", "x" * 30, "y"), tmp_path / "cache"
    packs(path, cache)
    packs(write(tmp_path / "copy.json", "x" * 30, "y"), cache)
    assert entries(cache) == 1  # the text counts, not where it lies
    changed = write(path, "x" * 30, "Y")
    assert packs(changed, cache).table.tokens.tolist() == packs(changed, None).table.tokens.tolist()
    packs(changed, cache, tokenizer="v4")
    packs(changed, cache, recipe=Recipe(window=64, seed=1))
    assert entries(cache) == 4


def test_packs_of_one_format_never_change(tmp_path: Path) -> None:
    # Caches of users hold packs under this format. Other packs (from other code, or from random numbers that numpy
    # draws otherwise) need another FORMAT; put the new digests here with it.
    answers = [f"{number} " * (number % 17 + 1) for number in range(60)]
    data = packs(write(tmp_path / "a.json", *answers), None, recipe=Recipe(window=128, seed=3))
    arrays = data.to_arrays()
    content = hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest()
    order = hashlib.sha256(str(list(islice(data.order(), 3 * len(data)))).encode()).hexdigest()
    assert (FORMAT, content[:16], order[:16]) == (1, "d1c14fa89037ec13", "1b42ae212339839b")
