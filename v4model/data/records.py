"""What one record says: objects of the known schemas to turns of a conversation, everything else refused."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from v4model.data.tokenizer import ASSISTANT, SYSTEM, USER, Turn
from v4model.errors import DataError, UnsupervisedError

ALPACA_KEYS = ("instruction", "input", "output")
# Keys that change what a record says in other dialects of these formats: passing over them would lose content.
_ALPACA_REFUSED = ("system", "history", "messages")
_CHAT_REFUSED = ("system", "tools", "functions")
_MESSAGE_KEYS = ("role", "content")


def alpaca_turns(record: object, *, where: str) -> list[Turn]:
    """Turns of an object with instruction, input (may be "") and output.

    The question is the instruction and, on a new line, the input. Raises DataError; an UnsupervisedError for an empty
    output.
    """
    fields = _fields(record, wanted=ALPACA_KEYS, refused=_ALPACA_REFUSED, where=where)
    instruction, extra, output = (_text(fields, key, where=where) for key in ALPACA_KEYS)
    for key, text, kind in (("instruction", instruction, DataError), ("output", output, UnsupervisedError)):
        if not text.strip():
            raise kind(got="an empty text", expected="text", where=f"{where}, key {key!r}")
    return [(USER, f"{instruction}\n{extra}" if extra.strip() else instruction), (ASSISTANT, output)]


def chat_turns(record: object, *, where: str) -> list[Turn]:
    """Turns of `{"messages": [{"role": ..., "content": ...}, ...]}`. Raises DataError."""
    messages = _fields(record, wanted=("messages",), refused=_CHAT_REFUSED, where=where)["messages"]
    if not isinstance(messages, list) or not messages:
        got = told(messages)
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
        raise DataError(got=told(record), expected="a JSON object", where=where)
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
        raise DataError(got=told(value), expected="a text", where=f"{where}, key {key!r}")
    return value


def told(value: object) -> str:
    """A JSON value for an error message: its kind and, where short, its content."""
    if isinstance(value, dict):
        return f"an object with {_told_keys(value)}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        return f"the text {value[:40]!a}" + ("..." if len(value) > 40 else "")
    return json.dumps(value, default=repr)  # rows of a dataset may hold dates and the like


def _told_keys(record: dict[str, Any]) -> str:
    names = [repr(key) for key in record][:6]
    return ("keys " + ", ".join(names) if names else "no keys") + (", ..." if len(record) > 6 else "")
