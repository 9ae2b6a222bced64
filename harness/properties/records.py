"""What the properties of data share: records made of a case's lengths, the samples they are to become, answers.

The samples are written down here from the protocol's description, byte by byte: nothing of the code under check.
"""

from __future__ import annotations

import json
import string
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from harness.properties.measure import draw
from harness.subjects.packs_records import Cache, Packing, PacksRecords
from harness.tolerance import EXACT
from harness.verdict import Verdict
from harness.witness import Witness

if TYPE_CHECKING:
    from harness.case import Case
    from harness.corpus import Corpus
    from harness.properties import Observe
    from harness.subjects.protocol import Subject
    from v4model import Pack

BOS, EOS, USER, ASSISTANT, NO_THINKING = range(256, 261)

_SHORTEST = 7
"""Five markers, and a letter of question and answer each."""

_ROOM = 64
"""Tokens of the smallest window: short samples fill it by the handful."""

Sample: TypeAlias = tuple[tuple[int, ...], tuple[bool, ...]]
"""Tokens, and which of them are supervised."""


@dataclass(frozen=True)
class Record:
    """One question and one answer in ASCII."""

    question: str
    answer: str

    @property
    def sample(self) -> Sample:
        """What the "bytes" tokenizer is to make of it."""
        prompt = (BOS, USER, *self.question.encode(), ASSISTANT, NO_THINKING)
        learned = (*self.answer.encode(), EOS)
        return (*prompt, *learned), (False,) * len(prompt) + (True,) * len(learned)

    @property
    def chat(self) -> dict[str, object]:
        """The record as a line of a chat file."""
        turns = (("user", self.question), ("assistant", self.answer))
        return {"messages": [{"role": role, "content": content} for role, content in turns]}


@dataclass(frozen=True)
class Request:
    """Records, and what they are packed by; the longest record is exactly as long as the window."""

    records: tuple[Record, ...]
    packing: Packing


@dataclass(frozen=True, eq=False)
class Answer:
    """The packs that a subject made of a request, or why it refused."""

    packs: tuple[Pack, ...]
    refusal: str = ""

    @property
    def table(self) -> Tensor:
        """int64, all of it in one row, so that two answers can be compared to the bit; one -1 for a refusal."""
        if self.refusal:
            return torch.tensor([-1])
        parts = [torch.tensor([len(self.packs)])]
        for pack in self.packs:
            layout = pack.layout
            parts += [pack.tokens, pack.supervised.long(), torch.tensor([layout.num_samples, layout.total])]
            parts += [torch.tensor(layout.lengths), torch.tensor(layout.starts)]
        return torch.cat(parts)

    def samples(self) -> Iterator[tuple[str, Sample]]:
        """Every sample with its place in words, in the order of the packs."""
        for number, pack in enumerate(self.packs):
            for index, (start, length) in enumerate(zip(pack.layout.starts, pack.layout.lengths, strict=True)):
                own = slice(start, start + length)
                place = f"sample {index} of pack {number} of {len(self.packs)}"
                yield place, (tuple(pack.tokens[own].tolist()), tuple(pack.supervised[own].tolist()))


def request_of(lengths: Sequence[int], choose: Random) -> Request:
    """Records of a case's lengths, one as long as the window, and short ones for two packs, in a drawn order."""
    # A multiple of 8, so that samples can be aligned.
    window = -(-max(*lengths, _ROOM) // 8) * 8
    short = [_SHORTEST + choose.randrange(3) for _ in range(2 * window // _SHORTEST)]
    wanted = [*(max(length, _SHORTEST) for length in lengths), window, *short]
    choose.shuffle(wanted)
    return Request(tuple(_record(length, choose) for length in wanted), Packing(window=window))


def asked(subject: PacksRecords, path: Path, packing: Packing, *, cache: Cache | None = None) -> Answer:
    """The subject's answer for the records in a file."""
    try:
        return Answer(tuple(subject.packs_of(path, packing, cache=cache)))
    except ValueError as error:
        # The folder has another name every time.
        return Answer((), f"{type(error).__name__}: {error}".replace(f"{path.parent}/", ""))


def write_chat(path: Path, lines: Sequence[object]) -> Path:
    """A chat file with one JSON value a line; returns its path."""
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


@contextmanager
def folder() -> Iterator[Path]:
    """An empty folder, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="harness-data-") as name:
        yield Path(name)


Find: TypeAlias = Callable[[PacksRecords, Sequence[int], Random], "Witness | None"]
"""The first thing that is wrong with a subject, for records of these lengths, if any is."""
Tables: TypeAlias = Callable[[PacksRecords, Sequence[int], Random], dict[str, Tensor]]
"""What is looked at, by name."""


def check_of(name: str, find: Find) -> Callable[[Subject, Case, Corpus], Verdict]:
    """The check of a property of data; vacuous on a subject that packs no records."""

    def check(subject: Subject, case: Case, _corpus: Corpus) -> Verdict:
        if not isinstance(subject, PacksRecords):
            return Verdict.vacuous("the subject packs no records")
        witness = find(subject, case.lengths, draw(case, name))
        return Verdict.holds(error=0.0, bound=EXACT) if witness is None else Verdict.violated(witness)

    return check


def observe_of(name: str, tables: Tables) -> Observe:
    """What a property of data compares, for records of the lengths of a pack; nothing where no records are packed."""

    def observe(subject: Subject, pack: Pack) -> dict[str, Tensor]:
        if not isinstance(subject, PacksRecords):
            return {}
        return tables(subject, pack.layout.lengths, Random(name))

    return observe


def wrong(name: str, what: str, *, count: int = 1, got: str | None = None, expected: str | None = None) -> Witness:
    """A finding about data; count: how many samples, tokens or packs are concerned."""
    return Witness(
        property=name, branch="data", what=what, magnitude=float(count), bound=EXACT, got=got, expected=expected
    )


def _record(length: int, choose: Random) -> Record:
    letters = "".join(choose.choices(string.ascii_letters, k=length - _SHORTEST + 2))
    cut = choose.randrange(1, len(letters))
    return Record(letters[:cut], letters[cut:])
