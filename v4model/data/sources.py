"""Samples from files and from the built-in text: token ids and, for each token, whether it is learned as a label.

A source gives samples in the order of its records, whole and of natural length. A record that cannot be used raises a
DataError that names the file, the record and the key; one in which nothing is learned comes out as an
UnsupervisedError in its place, so that whoever reads decides. None is dropped here, none becomes a masked sample.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from v4model.data.builtin import docstrings
from v4model.data.folder import folder_digest, folder_rows
from v4model.data.records import ALPACA_KEYS, alpaca_turns, chat_turns, told
from v4model.data.tokenizer import ASSISTANT, USER, ChatTokenizer, Turn, check_turns
from v4model.errors import DataError, UnsupervisedError

BUILTIN_SAMPLES = 2048


@dataclass(frozen=True)
class Sample:
    """One training sample.

    Args:
        tokens: ids, BOS first.
        supervised: same length; True where the token is learned as a label (an answer and the EOS that closes it).
    """

    tokens: tuple[int, ...]
    supervised: tuple[bool, ...]

    def __post_init__(self) -> None:
        if not self.tokens or len(self.tokens) != len(self.supervised):
            got = f"{len(self.tokens)} tokens and a mask of {len(self.supervised)}"
            raise DataError(got=got, expected="at least one token, and a mask of the same length")


Located = tuple[str, Sample | UnsupervisedError]
"""Where a record stands, and its sample, or why nothing is learned from it."""


@dataclass(frozen=True)
class Conversations:
    """Records as turns, or as the error of one in which nothing is learned; `where(index)` names a record."""

    turns: Sequence[Sequence[Turn] | UnsupervisedError]
    where: Callable[[int], str]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Text that was opened and not yet parsed.

    Args:
        name: for messages.
        digest: sha256 of the content, which does not depend on where it lies.
        read: parses every record. Raises DataError.
    """

    name: str
    digest: str
    read: Callable[[], Conversations]

    def samples(self, tokenizer: ChatTokenizer) -> Iterator[Located]:
        """Every record in order, encoded group by group. Raises DataError."""
        conversations = self.read()
        encoded = tokenizer.encode_checked([t for t in conversations.turns if not isinstance(t, UnsupervisedError)])
        for index, turns in enumerate(conversations.turns):
            where = conversations.where(index)
            yield where, turns if isinstance(turns, UnsupervisedError) else _sample(*next(encoded), where=where)


@dataclass(frozen=True)
class Summary:
    """Counts of a list of samples; lengths in tokens."""

    samples: int
    tokens: int
    supervised_tokens: int
    shortest_tokens: int
    median_tokens: float
    longest_tokens: int

    def __str__(self) -> str:
        supervised = f"{self.supervised_tokens / self.tokens:.0%} supervised"
        return (
            f"{self.samples:,} samples, {self.tokens:,} tokens ({supervised}); "
            f"length {self.shortest_tokens:,} to {self.longest_tokens:,}, median {self.median_tokens:g}"
        )


def describe(samples: Sequence[Sample]) -> Summary:
    """Count samples, tokens and lengths. Raises DataError for none."""
    if not samples:
        raise DataError(got="no samples", expected="at least one")
    lengths = [len(sample.tokens) for sample in samples]
    return Summary(
        samples=len(samples),
        tokens=sum(lengths),
        supervised_tokens=sum(sum(sample.supervised) for sample in samples),
        shortest_tokens=min(lengths),
        median_tokens=statistics.median(lengths),
        longest_tokens=max(lengths),
    )


def open_source(spec: str | Path | None) -> Source:
    """A file by its ending (`.json` Alpaca, `.jsonl` chat), a Hugging Face datasets folder, or built-in text (None).

    Raises DataError.
    """
    if spec is None:
        return builtin_source(limit=BUILTIN_SAMPLES)
    path = Path(spec)
    if path.is_dir():
        return Source(name=str(path), digest=folder_digest(path), read=lambda: _folder(path))
    openers = {".json": alpaca_source, ".jsonl": chat_source}
    opener = openers.get(path.suffix.lower())
    if opener is None:
        expected = ".json (Alpaca), .jsonl (chat) or a datasets folder"
        raise DataError(got=f"the file ending {path.suffix!r}", expected=expected, where=str(path))
    return opener(path)


def load_samples(spec: str | Path | None, tokenizer: ChatTokenizer) -> list[Sample]:
    """Samples of what `open_source` opens. Raises DataError."""
    return _all(open_source(spec), tokenizer)


def builtin_text(tokenizer: ChatTokenizer, *, limit: int = BUILTIN_SAMPLES) -> list[Sample]:
    """At most `limit` docstrings of the installed Python and torch as questions and answers. Raises DataError."""
    return _all(builtin_source(limit=limit), tokenizer)


def read_alpaca(path: str | Path, tokenizer: ChatTokenizer) -> list[Sample]:
    """Samples of an Alpaca file. Raises DataError."""
    return _all(alpaca_source(path), tokenizer)


def read_chat(path: str | Path, tokenizer: ChatTokenizer) -> list[Sample]:
    """Samples of a chat file. Raises DataError."""
    return _all(chat_source(path), tokenizer)


def builtin_source(*, limit: int) -> Source:
    """Docstrings of the installed Python and torch as questions and answers."""
    found = docstrings(limit=limit)
    turns: list[list[Turn]] = [[(USER, item.question), (ASSISTANT, item.answer)] for item in found]
    conversations = Conversations(turns, lambda index: f"docstring of {found[index].name}")
    return Source(name="built-in text", digest=_sha256(repr(turns).encode()), read=lambda: conversations)


def alpaca_source(path: str | Path) -> Source:
    """An Alpaca file: a JSON list of objects with instruction, input (may be "") and output."""
    content = _read(path)
    return Source(name=str(path), digest=_sha256(content), read=lambda: _alpaca(content, where=str(path)))


def chat_source(path: str | Path) -> Source:
    """A chat file: a JSON object a line, `{"messages": [{"role": ..., "content": ...}, ...]}`.

    Roles: system (first, optional), then user and assistant in turn, assistant last. Blank lines are passed over.
    """
    content = _read(path)
    return Source(name=str(path), digest=_sha256(content), read=lambda: _chat(content, where=str(path)))


def _all(source: Source, tokenizer: ChatTokenizer) -> list[Sample]:
    samples = []
    for _, found in source.samples(tokenizer):
        if isinstance(found, UnsupervisedError):
            raise found
        samples.append(found)
    return samples


def _sample(tokens: tuple[int, ...], supervised: tuple[bool, ...], *, where: str) -> Sample | UnsupervisedError:
    # The first token has no position before it, so a mask on it alone teaches nothing.
    if any(supervised[1:]):
        return Sample(tokens, supervised)
    return UnsupervisedError(got=f"no supervised label in {len(tokens)} tokens", expected="at least one", where=where)


def _alpaca(content: bytes, *, where: str) -> Conversations:
    records = _json_value(_text(content, where=where), where=where)
    if not isinstance(records, list):
        raise DataError(got=told(records), expected="a JSON list of records (chat files are .jsonl)", where=where)
    return _conversations(
        records, alpaca_turns, where=lambda index: f"{where}, record {index + 1} of {len(records)}", file=where
    )


def _chat(content: bytes, *, where: str) -> Conversations:
    # Only "\n" ends a line: str.splitlines would also cut at U+2028, which JSON strings may contain.
    lines = _text(content, where=where).split("\n")
    filled = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]

    def turns(line: object, *, where: str) -> list[Turn]:
        return chat_turns(_json_value(str(line), where=where), where=where)

    def place(index: int) -> str:
        return f"{where}, record {index + 1} of {len(filled)} (line {filled[index][0]})"

    return _conversations([line for _, line in filled], turns, where=place, file=where)


def _folder(path: Path) -> Conversations:
    columns, rows = folder_rows(path)
    if "messages" in columns:
        turns = chat_turns
    elif set(ALPACA_KEYS) <= columns:
        turns = alpaca_turns
    else:
        expected = f"'messages', or {', '.join(map(repr, ALPACA_KEYS))}"
        raise DataError(got=f"columns {', '.join(map(repr, sorted(columns)))}", expected=expected, where=str(path))
    return _conversations(rows, turns, where=lambda index: f"{path}, row {index + 1} of {len(rows)}", file=str(path))


def _conversations(
    records: Sequence[object],
    parse: Callable[..., list[Turn]],
    *,
    where: Callable[[int], str],
    file: str,
) -> Conversations:
    if not records:
        raise DataError(got="no records", expected="at least one", where=file)
    found: list[Sequence[Turn] | UnsupervisedError] = []
    for index, record in enumerate(records):
        try:
            turns = parse(record, where=where(index))
            check_turns(turns, where=where(index))
            found.append(turns)
        except UnsupervisedError as error:
            found.append(error)
    return Conversations(found, where)


def _read(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else error
        got = f"a file that cannot be read ({reason})"
        raise DataError(got=got, expected="a readable file", where=str(path)) from error


def _text(content: bytes, *, where: str) -> str:
    """The whole text in UTF-8, a byte order mark allowed."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(got=f"no UTF-8 text (byte {error.start})", expected="UTF-8", where=where) from error
    if not text.strip():
        raise DataError(got="an empty file", expected="at least one record", where=where)
    return text


def _json_value(text: str, *, where: str) -> object:
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as error:
        got = f"invalid JSON ({error.msg}: line {error.lineno} column {error.colno})"
        raise DataError(got=got, expected="JSON", where=where) from error
    except (ValueError, RecursionError) as error:  # a number with thousands of digits; brackets thousands deep
        raise DataError(got=f"unreadable JSON ({error})", expected="JSON", where=where) from error
    return value


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
