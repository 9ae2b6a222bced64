"""Files to samples: content kept whole, and every unusable file refused with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from v4model.data import sources
from v4model.data.sources import Sample, builtin_text, describe, load_samples, read_alpaca, read_chat
from v4model.data.tokenizer import ChatTokenizer, load_v4_tokenizer
from v4model.errors import DataError

BOS, EOS = "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"
USER, ASSISTANT = "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"


@pytest.fixture(scope="module")
def v4() -> ChatTokenizer:
    return load_v4_tokenizer()


def record(**changes: Any) -> dict[str, Any]:
    return {"instruction": "Add.", "input": "1, 2", "output": "3"} | changes


def chat(*messages: tuple[str, str]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in messages]}


def write_json(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def write_lines(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(item, ensure_ascii=False) + "\n" for item in records), encoding="utf-8")
    return path


def learned(v4: ChatTokenizer, sample: Sample) -> str:
    return v4.decode([token for token, on in zip(sample.tokens, sample.supervised, strict=True) if on])


def test_alpaca_records_become_samples_in_order(v4: ChatTokenizer, tmp_path: Path) -> None:
    long_answer = "Natural length, never cut. " * 2000
    path = write_json(
        tmp_path / "data.json",
        [record(), record(input="", output=" Nothing to add.\n"), record(input=" ", output=long_answer, id=7)],
    )
    samples = read_alpaca(path, v4)
    assert [v4.decode(sample.tokens) for sample in samples] == [
        f"{BOS}{USER}Add.\n1, 2{ASSISTANT}</think>3{EOS}",
        f"{BOS}{USER}Add.{ASSISTANT}</think> Nothing to add.\n{EOS}",
        f"{BOS}{USER}Add.{ASSISTANT}</think>{long_answer}{EOS}",
    ]
    assert [learned(v4, sample) for sample in samples] == [f"3{EOS}", f" Nothing to add.\n{EOS}", long_answer + EOS]


def test_chat_lines_become_samples_in_order(v4: ChatTokenizer, tmp_path: Path) -> None:
    first = chat(("system", "Be brief."), ("user", "a?"), ("assistant", "b"), ("user", "c?"), ("assistant", "d"))
    second = chat(("user", "line\u2028separator?"), ("assistant", "kept\u2028whole\r\nhere")) | {"id": "x"}
    path = write_lines(tmp_path / "data.jsonl", first)
    path.write_bytes(
        b"\xef\xbb\xbf" + path.read_bytes() + b"\r\n \n" + json.dumps(second, ensure_ascii=False).encode("utf-8")
    )
    samples = read_chat(path, v4)
    assert [v4.decode(sample.tokens) for sample in samples] == [
        f"{BOS}Be brief.{USER}a?{ASSISTANT}</think>b{EOS}{USER}c?{ASSISTANT}</think>d{EOS}",
        f"{BOS}{USER}line\u2028separator?{ASSISTANT}</think>kept\u2028whole\r\nhere{EOS}",
    ]
    assert [learned(v4, sample) for sample in samples] == [f"b{EOS}d{EOS}", f"kept\u2028whole\r\nhere{EOS}"]
    for sample in samples:
        assert sample.tokens.count(v4.bos) == 1
        assert len(sample.tokens) == len(sample.supervised)


def test_spec_picks_the_reader(v4: ChatTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alpaca = write_json(tmp_path / "a.JSON", [record()])
    lines = write_lines(tmp_path / "b.jsonl", chat(("user", "Add.\n1, 2"), ("assistant", "3")))
    assert load_samples(alpaca, v4) == load_samples(str(lines), v4) == read_alpaca(alpaca, v4)
    monkeypatch.setattr(sources, "BUILTIN_SAMPLES", 4)
    assert load_samples(None, v4) == builtin_text(v4, limit=4)
    with pytest.raises(
        DataError, match=r"file ending '.txt'.*\.json \(Alpaca\), \.jsonl \(chat\) or a datasets folder"
    ):
        load_samples(tmp_path / "c.txt", v4)


@pytest.mark.parametrize(
    ("value", "got", "expected", "where"),
    [
        ([], "no records", "at least one", ""),
        ({"messages": []}, "an object with keys 'messages'", "a JSON list of records", ""),
        ("text", "the text 'text'", "a JSON list of records", ""),
        ([record(), 5], "5", "a JSON object", ", record 2 of 2"),
        ([record(), [1, 2]], "a list of 2", "a JSON object", ", record 2 of 2"),
        ([record(), {}], "no keys", "a key 'instruction'", ", record 2 of 2"),
        ([{"question": "a", "answer": "b"}], "keys 'question', 'answer'", "a key 'instruction'", ", record 1 of 1"),
        ([{"instruction": "a", "output": "b"}], "keys 'instruction', 'output'", "a key 'input'", ", record 1 of 1"),
        ([record(output=None)], "null", "a text", ", record 1 of 1, key 'output'"),
        ([record(input=["x"])], "a list of 1", "a text", ", record 1 of 1, key 'input'"),
        ([record(), record(output="")], "an empty text", "text", ", record 2 of 2, key 'output'"),
        ([record(instruction=" \n")], "an empty text", "text", ", record 1 of 1, key 'instruction'"),
        ([record(history=[["a", "b"]])], "a key 'history'", "a record without 'history'", ", record 1 of 1"),
        (
            [record(), record(input=f"{BOS}x")],
            ascii(BOS) + " in the user",
            "without V4's",
            ", record 2 of 2, turn 1 of 2",
        ),
        ([record(output="\ud800")], r"'\ud800' in the assistant", "lone surrogates", ", record 1 of 1, turn 2 of 2"),
    ],
)
def test_alpaca_refusals(v4: ChatTokenizer, tmp_path: Path, value: object, got: str, expected: str, where: str) -> None:
    path = write_json(tmp_path / "data.json", value)
    with pytest.raises(DataError) as caught:
        read_alpaca(path, v4)
    assert caught.value.got.startswith(got)
    assert expected in caught.value.expected
    assert caught.value.where == f"{path}{where}"


GOOD = chat(("user", "a"), ("assistant", "b"))


@pytest.mark.parametrize(
    ("value", "got", "expected", "where"),
    [
        ([GOOD], "a list of 1", "a JSON object", ""),
        (record(), "keys 'instruction', 'input', 'output'", "a key 'messages'", ""),
        ({"messages": "a"}, "the text 'a'", "a list of messages", ", key 'messages'"),
        ({"messages": []}, "a list of 0", "a list of messages", ", key 'messages'"),
        ({"messages": ["a"]}, "the text 'a'", "a JSON object", ", message 1 of 1"),
        ({"messages": [{"from": "human", "value": "a"}]}, "keys 'from', 'value'", "a key 'role'", ", message 1 of 1"),
        ({"messages": [{"role": "user"}]}, "keys 'role'", "a key 'content'", ", message 1 of 1"),
        (chat(("tool", "a")), "role 'tool'", "'system', 'user' or 'assistant'", ", message 1 of 1, key 'role'"),
        ({"messages": [{"role": 1, "content": "a"}]}, "1", "a text", ", message 1 of 1, key 'role'"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
            "a list of 1",
            "a text",
            ", message 1 of 1, key 'content'",
        ),
        (
            {"messages": [GOOD["messages"][0], GOOD["messages"][1] | {"reasoning_content": "c"}]},
            "key 'reasoning_content'",
            "only 'role' and 'content'",
            ", message 2 of 2",
        ),
        (GOOD | {"tools": [{"name": "f"}]}, "a key 'tools'", "a record without 'tools'", ""),
        (chat(("user", "a"), ("user", "b")), "nothing to learn ('user', 'user')", "at least one assistant turn", ""),
        (chat(("user", "a"), ("assistant", " ")), "an empty assistant text", "text", ", turn 2 of 2"),
        (chat(("user", "a"), ("assistant", f"b{EOS}")), ascii(EOS), "without V4's chat markers", ", turn 2 of 2"),
    ],
)
def test_chat_refusals(v4: ChatTokenizer, tmp_path: Path, value: object, got: str, expected: str, where: str) -> None:
    path = write_lines(tmp_path / "data.jsonl", GOOD)
    path.write_text(path.read_text() + "\n" + json.dumps(value))
    with pytest.raises(DataError) as caught:
        read_chat(path, v4)
    assert caught.value.got.startswith(got)
    assert expected in caught.value.expected
    assert caught.value.where == f"{path}, record 2 of 2 (line 3){where}"


@pytest.mark.parametrize("reader", [read_alpaca, read_chat])
@pytest.mark.parametrize(
    ("content", "got"),
    [
        (None, "a file that cannot be read (No such file or directory)"),
        (b"", "an empty file"),
        (b" \n\n", "an empty file"),
        (b'[{"instruction": "caf\xe9"}]', "no UTF-8 text (byte 21)"),
        (b'[{"instruction": ', "invalid JSON (Expecting value: line 1 column 18)"),
        (b"1" * 5000, "unreadable JSON (Exceeds the limit"),
        (b"[" * 200_000, "unreadable JSON (maximum recursion depth"),
    ],
    ids=["absent", "empty", "blank", "latin-1", "cut", "long number", "deep"],
)
def test_unreadable_files_are_refused(
    v4: ChatTokenizer, tmp_path: Path, reader: Any, content: bytes | None, got: str
) -> None:
    path = tmp_path / "data"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        reader(path, v4)
    assert caught.value.got.startswith(got)
    assert caught.value.where.startswith(str(path))


def test_a_folder_and_an_impossible_name_are_refused(v4: ChatTokenizer, tmp_path: Path) -> None:
    for path in (tmp_path, Path("nul\0.json")):
        with pytest.raises(DataError, match="a file that cannot be read"):
            read_alpaca(path, v4)


def test_a_fully_masked_sample_is_never_returned(
    v4: ChatTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_json(tmp_path / "data.json", [record()])
    mask = (True, False, False)  # the first token is nobody's label
    monkeypatch.setattr(ChatTokenizer, "encode_checked", lambda *_: iter([((0, 5, 1), mask)]))
    with pytest.raises(DataError) as caught:
        read_alpaca(path, v4)
    assert caught.value.got == "no supervised label in 3 tokens"
    assert caught.value.where == f"{path}, record 1 of 1"


def test_sample_and_mask_have_one_length() -> None:
    with pytest.raises(DataError, match="2 tokens and a mask of 1"):
        Sample((0, 1), (True,))
    with pytest.raises(DataError, match="0 tokens"):
        Sample((), ())


def test_describe_counts() -> None:
    samples = [Sample(tuple(range(n)), (False, *[True] * (n - 1))) for n in (2, 3, 1000, 5)]
    summary = describe(samples)
    assert summary == sources.Summary(
        samples=4, tokens=1010, supervised_tokens=1006, shortest_tokens=2, median_tokens=4.0, longest_tokens=1000
    )
    assert str(summary) == "4 samples, 1,010 tokens (100% supervised); length 2 to 1,000, median 4"
    with pytest.raises(DataError, match="no samples"):
        describe([])
