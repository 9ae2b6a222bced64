"""Real text as the content of cases: which tokens a case's samples hold follows from its seed alone."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from harness.errors import UsageError

_SAMPLES_USED = 400
"""Of a large source only so many samples are used: text for thousands of cases that loads in about a second."""


class TextSample(Protocol):
    """Tokens of one sample; supervised[i] says that token i is answer text (the mask belongs to the label token)."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """Token ids of the tokenizer, unfolded."""
        ...

    @property
    def supervised(self) -> tuple[bool, ...]:
        """One flag a token."""
        ...


@dataclass(frozen=True)
class Corpus:
    """A named, ordered set of real samples; vocab_size is the tokenizer's.

    The same samples give the same content of every case, in any process; `digest` says whether they are the same.
    """

    name: str
    samples: tuple[TextSample, ...]
    vocab_size: int

    def __post_init__(self) -> None:
        if not any(sample.tokens for sample in self.samples):
            raise UsageError(got="no tokens", expected="at least one sample with text", where=f"corpus {self.name}")

    @cached_property
    def digest(self) -> str:
        """Twelve hexadecimal digits that change with any token or supervised flag."""
        hasher = hashlib.sha256()
        for sample in self.samples:
            hasher.update(repr((tuple(sample.tokens), tuple(map(bool, sample.supervised)))).encode())
        return hasher.hexdigest()[:12]

    @cached_property
    def num_tokens(self) -> int:
        """Tokens of all samples together."""
        return sum(len(sample.tokens) for sample in self.samples)

    @cached_property
    def frequent_token(self) -> int:
        """The id seen most often (the smallest of equals).

        Padding slots hold it: code that tells padding by token value then also hits real tokens.
        """
        counts = Counter(token for sample in self.samples for token in sample.tokens)
        return min(counts, key=lambda token: (-counts[token], token))

    def natural_lengths(self, *, at_most: int) -> tuple[int, ...]:
        """The distinct lengths in tokens of the real samples, ascending, up to a limit."""
        return tuple(sorted({len(sample.tokens) for sample in self.samples if 0 < len(sample.tokens) <= at_most}))

    def text(self, seed: int, index: int, *, length: int) -> tuple[list[int], list[bool]]:
        """Tokens and supervised flags of sample `index` of the case with `seed`: `length` of each.

        Starts at a drawn token of a drawn real sample and goes on into the next real samples where that one ends. A
        shorter length gives a prefix of a longer one, so that shrinking a case keeps its text.
        """
        # Seeded with text: unlike a tuple's hash, that is the same in every process.
        draw = random.Random(f"text of case {seed}, sample {index}")
        which = draw.randrange(len(self.samples))
        while not self.samples[which].tokens:
            which = (which + 1) % len(self.samples)
        start = draw.randrange(len(self.samples[which].tokens))
        tokens = list(self.samples[which].tokens[start : start + length])
        flags = list(self.samples[which].supervised[start : start + length])
        while len(tokens) < length:
            which = (which + 1) % len(self.samples)
            missing = length - len(tokens)
            tokens += self.samples[which].tokens[:missing]
            flags += self.samples[which].supervised[:missing]
        return tokens, flags

    def to_json(self) -> dict[str, Any]:
        """What a report says about the text."""
        return {
            "name": self.name,
            "digest": self.digest,
            "samples": len(self.samples),
            "tokens": self.num_tokens,
            "tokenizer_vocabulary": self.vocab_size,
        }


def builtin_corpus() -> Corpus:
    """Docstrings of the installed Python and torch as questions and answers, in V4's own tokens."""
    from v4model.data import builtin_text, load_v4_tokenizer

    tokenizer = load_v4_tokenizer()
    return Corpus("built-in", tuple(builtin_text(tokenizer, limit=_SAMPLES_USED)), tokenizer.vocab_size)


def load_corpus(path: Path | None) -> Corpus:
    """The built-in corpus (None), or the samples of an Alpaca JSON or chat JSONL file.

    Raises UsageError if the file cannot be read or holds no sample.
    """
    if path is None:
        return builtin_corpus()
    from v4model.data import load_samples, load_v4_tokenizer
    from v4model.errors import V4Error

    try:
        tokenizer = load_v4_tokenizer()
        samples = load_samples(path, tokenizer)
    except V4Error as error:
        raise UsageError(got=error.got, expected=error.expected, where=error.where) from error
    # Every n-th sample: the beginning of a file is often of one kind.
    step = -(-len(samples) // _SAMPLES_USED)
    return Corpus(path.name, tuple(samples[::step]), tokenizer.vocab_size)
