"""Training data: from text through V4's tokenizer and chat format to packs of whole samples."""

from v4model.data.load import load_packs
from v4model.data.packed import PackedData, pack_samples
from v4model.data.recipe import Recipe
from v4model.data.sources import (
    Sample,
    Source,
    Summary,
    builtin_text,
    describe,
    load_samples,
    open_source,
    read_alpaca,
    read_chat,
)
from v4model.data.tokenizer import ChatTokenizer, load_tokenizer, load_v4_tokenizer

__all__ = [
    "ChatTokenizer",
    "PackedData",
    "Recipe",
    "Sample",
    "Source",
    "Summary",
    "builtin_text",
    "describe",
    "load_packs",
    "load_samples",
    "load_tokenizer",
    "load_v4_tokenizer",
    "open_source",
    "pack_samples",
    "read_alpaca",
    "read_chat",
]
