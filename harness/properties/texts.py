"""What becomes of text: the chat format is applied once, and a record in which nothing is learned is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from torch import Tensor

from harness.properties import Property, register
from harness.properties.records import (
    Answer,
    Record,
    Request,
    asked,
    check_of,
    folder,
    observe_of,
    request_of,
    write_chat,
    wrong,
)
from harness.subjects.packs_records import PacksRecords

if TYPE_CHECKING:
    from harness.witness import Witness

ONCE = "text_is_tokenised_once"
REFUSED = "nothing_supervised_is_refused"

_BOS_TEXT = "<\uff5cbegin\u2581of\u2581sentence\uff5c>"


def _once(subject: PacksRecords, lengths: Sequence[int], choose: Random) -> Witness | None:
    for what, answer in _tokenised(subject, lengths, choose):
        if _BOS_TEXT in what:
            if not answer.refusal:
                return wrong(ONCE, f"{what} is taken as text", got="packs", expected="a refusal")
            continue
        if answer.refusal:
            return wrong(ONCE, f"records for {what} are refused", got=answer.refusal, expected="packs")
        witness = _markers(what, answer)
        if witness is not None:
            return witness
    return None


def _tokenised(subject: PacksRecords, lengths: Sequence[int], choose: Random) -> Iterator[tuple[str, Answer]]:
    """Both tokenizers, and a record that went through a template before."""
    request = request_of(lengths, choose)
    # Room for whatever is added where nothing should be.
    packing = replace(request.packing, window=2 * request.packing.window)
    again = Record(_BOS_TEXT + request.records[0].question, request.records[0].answer)
    with folder() as place:
        path = write_chat(place / "records.jsonl", [record.chat for record in request.records])
        for tokenizer in ("bytes", "v4"):
            yield f"the tokenizer {tokenizer}", asked(subject, path, replace(packing, tokenizer=tokenizer))
        lines = [record.chat for record in (again, *request.records[1:])]
        yield f"a question that begins with {_BOS_TEXT}", asked(subject, write_chat(path, lines), packing)


def _markers(what: str, answer: Answer) -> Witness | None:
    """A sample's first token, BOS, and its last, EOS, are those of every sample, and stand nowhere else."""
    samples = list(answer.samples())
    for end, name in ((0, "BOS"), (-1, "EOS")):
        marker = samples[0][1][0][end]
        for place, (tokens, _) in samples:
            if tokens.count(marker) != 1 or tokens[end] != marker:
                told = f"{name} {tokens.count(marker)} times among {len(tokens)} tokens of {place}"
                return wrong(ONCE, f"{what} gives {told}", got=f"{list(tokens[:6])} ...", expected=f"one {marker}")
    return None


def _once_tables(subject: PacksRecords, lengths: Sequence[int], choose: Random) -> dict[str, Tensor]:
    return {what: answer.table for what, answer in _tokenised(subject, lengths, choose)}


def _refused(subject: PacksRecords, lengths: Sequence[int], choose: Random) -> Witness | None:
    for what, answer in _spoilt(subject, lengths, choose):
        if not answer.refusal:
            masked = [place for place, (_, supervised) in answer.samples() if not any(supervised[1:])]
            told = f"samples without a label, {len(masked)} of them" if masked else "packs of the others"
            where = f", such as {masked[0]}" if masked else ""
            return wrong(REFUSED, f"{what} is taken", count=max(len(masked), 1), got=told + where, expected="a refusal")
    return None


def _spoilt(subject: PacksRecords, lengths: Sequence[int], choose: Random) -> Iterator[tuple[str, Answer]]:
    """Files in which one record, at a drawn place, has nothing to learn in it, each in another way."""
    request = request_of(lengths, choose)
    at = choose.randrange(len(request.records))
    record = request.records[at]
    turns = [{"from": "human", "value": record.question}, {"from": "gpt", "value": record.answer}]
    alien = [{"role": "human", "content": record.question}, {"role": "gpt", "content": record.answer}]
    question = {"role": "user", "content": record.question}
    lines = {
        "a record of conversations with from and value": {"conversations": turns},
        "a record whose messages have from and value": {"messages": turns},
        "a record whose roles are human and gpt": {"messages": alien},
        "a record without an answer": {"messages": [question]},
        "a record with an empty answer": {"messages": [question, {"role": "assistant", "content": " "}]},
    }
    with folder() as place:
        for what, line in lines.items():
            chat: list[object] = [other.chat for other in request.records]
            chat[at] = line
            yield what, asked(subject, write_chat(place / "records.jsonl", chat), request.packing)
        for key, value in (("response", record.answer), ("output", "")):
            path = _write_alpaca(place / "records.json", request, at=at, spoilt={key: value})
            yield f"a record with {key} {value!r} for its output", asked(subject, path, request.packing)


def _write_alpaca(path: Path, request: Request, *, at: int, spoilt: dict[str, str]) -> Path:
    """The records as instruction and output, the one at that place with `spoilt` for its output."""
    rows: list[dict[str, str]] = [
        {"instruction": record.question, "input": "", "output": record.answer} for record in request.records
    ]
    rows[at] = {key: value for key, value in rows[at].items() if key != "output"} | spoilt
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def _refused_tables(subject: PacksRecords, lengths: Sequence[int], choose: Random) -> dict[str, Tensor]:
    return {what: answer.table for what, answer in _spoilt(subject, lengths, choose)}


register(
    Property(
        ONCE,
        "each sample has one BOS, first, and one EOS, last; text with the chat format's markers in it is refused",
        check_of(ONCE, _once),
        kinds=("all",),
        rounded=True,
        looks_at="data",
        observed=observe_of(ONCE, _once_tables),
    )
)
register(
    Property(
        REFUSED,
        "a file of another schema, or with a record in which nothing is learned, is refused and never masked",
        check_of(REFUSED, _refused),
        kinds=("all",),
        rounded=True,
        looks_at="data",
        observed=observe_of(REFUSED, _refused_tables),
    )
)
