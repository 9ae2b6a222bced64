"""From the name of a source to packs, through the cache where one is given."""

from __future__ import annotations

from pathlib import Path

from v4model.data.cache import Arrays, cached
from v4model.data.packed import PackedData, pack_samples
from v4model.data.recipe import Recipe
from v4model.data.sources import Source
from v4model.data.tokenizer import ChatTokenizer


def load_packs(source: Source, *, tokenizer: ChatTokenizer, recipe: Recipe, cache: Path | None = None) -> PackedData:
    """The packs of a source; an entry of the cache spares parsing, tokens and packing. Raises DataError."""

    def build() -> Arrays:
        return pack_samples(source.samples(tokenizer), recipe=recipe).to_arrays()

    if cache is None:
        return PackedData.from_arrays(build(), recipe=recipe)
    key = recipe.key(source_digest=source.digest, tokenizer_digest=tokenizer.digest)
    return PackedData.from_arrays(cached(cache, key=key, build=build), recipe=recipe)
