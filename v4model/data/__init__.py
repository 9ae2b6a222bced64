"""Training text: tokenizer with V4's chat format, and sources of samples."""

from v4model.data.sources import (
    Sample,
    Summary,
    builtin_text,
    describe,
    load_samples,
    read_alpaca,
    read_chat,
)
from v4model.data.tokenizer import ChatTokenizer, load_v4_tokenizer

__all__ = [
    "ChatTokenizer",
    "Sample",
    "Summary",
    "builtin_text",
    "describe",
    "load_samples",
    "load_v4_tokenizer",
    "read_alpaca",
    "read_chat",
]
