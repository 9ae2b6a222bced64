"""Samples from files and from the built-in text: token ids and, for each token, whether it is learned as a label.

A source gives samples in the order of its records, whole and of natural length, or raises a DataError that names the
file, the record and the key. A record that cannot be used is never dropped and never becomes a fully masked sample.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from v4model.data.builtin import docstrings
from v4model.data.tokenizer import ASSISTANT, SYSTEM, USER, ChatTokenizer, Turn
from v4model.errors import DataError

BUILTIN_SAMPLES = 2048
_ALPACA_KEYS = ("instruction", "input", "output")
# Keys that change what a record says in other dialects of these formats: passing over them would lose content.
_ALPACA_REFUSED = ("system", "history", "messages")
_CHAT_REFUSED = ("system", "tools", "functions")
_MESSAGE_KEYS = ("role", "content")


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


def load_samples(spec: str | Path | None, tokenizer: ChatTokenizer) -> list[Sample]:
    """Samples of a file by its ending (`.json` Alpaca, `.jsonl` chat), or the built-in text for None.

    Raises DataError.
    """
    if spec is None:
        return builtin_text(tokenizer, limit=BUILTIN_SAMPLES)
    path = Path(spec)
    readers = {".json": read_alpaca, ".jsonl": read_chat}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        got = f"the file ending {path.suffix!r}"
        raise DataError(got=got, expected=".json (Alpaca) or .jsonl (chat)", where=str(path))
    return reader(path, tokenizer)


def builtin_text(tokenizer: ChatTokenizer, *, limit: int = BUILTIN_SAMPLES) -> list[Sample]:
    """At most `limit` docstrings of the installed Python and torch as questions and answers. Raises DataError."""
    found = docstrings(limit=limit)
    conversations: list[list[Turn]] = [[(USER, item.question), (ASSISTANT, item.answer)] for item in found]
    return _encode(conversations, tokenizer, where=lambda index: f"docstring of {found[index].name}")


def read_alpaca(path: str | Path, tokenizer: ChatTokenizer) -> list[Sample]:
    """Samples of an Alpaca file: a JSON list of objects with instruction, input (may be "") and output.

    The question is the instruction and, on a new line, the input. Raises DataError.
    """
    records = _json_value(_read(path), where=str(path))
    if not isinstance(records, list):
        raise DataError(got=_told(records), expected="a JSON list of records (chat files are .jsonl)", where=str(path))
    if not records:
        raise DataError(got="no records", expected="at least one", where=str(path))

    def place(index: int) -> str:
        return f"{path}, record {index + 1} of {len(records)}"

    conversations = [_alpaca_turns(record, where=place(index)) for index, record in enumerate(records)]
    return _encode(conversations, tokenizer, where=place)


def read_chat(path: str | Path, tokenizer: ChatTokenizer) -> list[Sample]:
    """Samples of a chat file: a JSON object a line, `{"messages": [{"role": ..., "content": ...}, ...]}`.

    Roles: system (first, optional), then user and assistant in turn, assistant last. Blank lines are passed over.
    Raises DataError.
    """
    # Only "\n" ends a line: str.splitlines would also cut at U+2028, which JSON strings may contain.
    lines = [(number, line) for number, line in enumerate(_read(path).split("\n"), start=1) if line.strip()]
    if not lines:
        raise DataError(got="no records", expected="at least one", where=str(path))

    def place(index: int) -> str:
        return f"{path}, record {index + 1} of {len(lines)} (line {lines[index][0]})"

    conversations = [
        _chat_turns(_json_value(line, where=place(index)), where=place(index)) for index, (_, line) in enumerate(lines)
    ]
    return _encode(conversations, tokenizer, where=place)


def _encode(
    conversations: Sequence[Sequence[Turn]], tokenizer: ChatTokenizer, *, where: Callable[[int], str]
) -> list[Sample]:
    samples = []
    for index, encoded in enumerate(tokenizer.encode_conversations(conversations, where=where)):
        sample = Sample(*encoded)
        # The first token has no position before it, so a mask on it alone teaches nothing.
        if not any(sample.supervised[1:]):
            got = f"no supervised label in {len(sample.tokens)} tokens"
            raise DataError(got=got, expected="at least one", where=where(index))
        samples.append(sample)
    return samples


def _alpaca_turns(record: object, *, where: str) -> list[Turn]:
    fields = _fields(record, wanted=_ALPACA_KEYS, refused=_ALPACA_REFUSED, where=where)
    instruction, extra, output = (_text(fields, key, where=where) for key in _ALPACA_KEYS)
    for key, text in (("instruction", instruction), ("output", output)):
        if not text.strip():
            raise DataError(got="an empty text", expected="text", where=f"{where}, key {key!r}")
    return [(USER, f"{instruction}\n{extra}" if extra.strip() else instruction), (ASSISTANT, output)]


def _chat_turns(record: object, *, where: str) -> list[Turn]:
    messages = _fields(record, wanted=("messages",), refused=_CHAT_REFUSED, where=where)["messages"]
    if not isinstance(messages, list) or not messages:
        got = _told(messages)
        raise DataError(got=got, expected="a list of messages, at least one", where=f"{where}, key 'messages'")
    turns = []
    for number, message in enumerate(messages, start=1):
        place = f"{where}, message {number} of {len(messages)}"
        fields = _fields(message, wanted=_MESSAGE_KEYS, refused=(), where=place)
        # Reasoning, tool calls, weights: every further key of a message changes what is learned.
        if unknown := sorted(set(fields) - set(_MESSAGE_KEYS)):
            raise DataError(got=f"key {unknown[0]!r}", expected="only 'role' and 'content'", where=place)
        role = _text(fields, "role", where=place)
        if role not in (SYSTEM, USER, ASSISTANT):
            expected = f"{SYSTEM!r}, {USER!r} or {ASSISTANT!r}"
            raise DataError(got=f"role {role!r}", expected=expected, where=f"{place}, key 'role'")
        turns.append((role, _text(fields, "content", where=place)))
    return turns


def _fields(record: object, *, wanted: Iterable[str], refused: Iterable[str], where: str) -> dict[str, Any]:
    """The record as an object that has all wanted keys and none of the refused ones."""
    if not isinstance(record, dict):
        raise DataError(got=_told(record), expected="a JSON object", where=where)
    for key in wanted:
        if key not in record:
            raise DataError(got=_told_keys(record), expected=f"a key {key!r}", where=where)
    for key in refused:
        if record.get(key):
            expected = f"a record without {key!r}, which this format does not carry"
            raise DataError(got=f"a key {key!r}", expected=expected, where=where)
    return record


def _text(fields: dict[str, Any], key: str, *, where: str) -> str:
    value = fields[key]
    if not isinstance(value, str):
        raise DataError(got=_told(value), expected="a text", where=f"{where}, key {key!r}")
    return value


def _read(path: str | Path) -> str:
    """The whole text of a UTF-8 file, a byte order mark allowed."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(got=f"no UTF-8 text (byte {error.start})", expected="UTF-8", where=str(path)) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else error
        got = f"a file that cannot be read ({reason})"
        raise DataError(got=got, expected="a readable file", where=str(path)) from error
    if not text.strip():
        raise DataError(got="an empty file", expected="at least one record", where=str(path))
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


def _told(value: object) -> str:
    """A JSON value for an error message: its kind and, where short, its content."""
    if isinstance(value, dict):
        return f"an object with {_told_keys(value)}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        return f"the text {value[:40]!a}" + ("..." if len(value) > 40 else "")
    return json.dumps(value)


def _told_keys(record: dict[str, Any]) -> str:
    names = [repr(key) for key in record][:6]
    return ("keys " + ", ".join(names) if names else "no keys") + (", ..." if len(record) > 6 else "")
